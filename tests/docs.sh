#!/usr/bin/env bash
# Every path in backticks, and every link to a file, in our Markdown pages names something that exists; so does every test
# that docs/map.md names. Every deliberate fault still applies.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
tracked=$(git ls-files --cached --others --exclude-standard)

# a path from the root, from the page, or the end of a longer path, as in a table whose row names the folder
exists() {
  local page=$1 path=${2%%#*}
  path=${path%/}
  [[ -z $path || -e $path || -e $(dirname "$page")/$path ]] && return
  grep -qE "(^|/)${path//./\\.}(/|\$)" <<<"$tracked"
}

while IFS= read -r page; do
  [[ -e $page ]] || continue # deleted, and not yet committed
  # what looks like a file or a folder: it has a known ending, or a slash at its end
  ticked=$(grep -oE '`[A-Za-z0-9_./-]+(\.(rs|md|sh|yaml|yml|json|jsonl|toml|tpl)|/)`' "$page" | tr -d '`' || true)
  linked=$(grep -oE '\]\([^)#: ]+(#[^) ]*)?\)' "$page" | sed -E 's/^\]\(//; s/\)$//' || true)
  for path in $ticked $linked; do
    exists "$page" "$path" || { echo "docs: $page names $path, which does not exist" >&2; failed=1; }
  done
done < <(git ls-files --cached --others --exclude-standard -- '*.md')

# names of several words are functions; `…` stands for the rest of a long one
while IFS= read -r name; do
  git grep --untracked -qE "fn ${name%…}" -- '*.rs' || { echo "docs: docs/map.md names $name, which is no function" >&2; failed=1; }
done < <(grep -oE '`[a-z0-9]+(_[a-z0-9]+)+(_?…)?`' docs/map.md | tr -d '`' | sort -u)

# every alert leads to a part of the page that its runbook_url names
rule=charts/noderotation/templates/prometheusrule.yaml
while IFS= read -r alert; do
  grep -qxF "## NodeRotation${alert^}" docs/troubleshooting.md || { echo "docs: docs/troubleshooting.md has no part for the alert NodeRotation${alert^}" >&2; failed=1; }
done < <(grep -oP '"name" "\K[A-Za-z]+' "$rule")
[[ $(grep -c '"name" "' "$rule") == $(grep -c '"description" "' "$rule") ]] || { echo "docs: not every alert has a description" >&2; failed=1; }

bash simulator/faults/run.sh --check || failed=1
exit $failed
