#!/usr/bin/env bash
# Puts each deliberate fault (docs/design/0007-deliberate-faults.md) into a copy of the work tree, one at a time, and runs
# what has to catch it: the simulator's histories, then the tests of the crates on the patch's line `Tests:`.
#
#   simulator/faults/run.sh                   every fault; the first run builds for some minutes
#   FAULTS=07,21 simulator/faults/run.sh      only those
#   simulator/faults/run.sh --check           only whether each patch still applies: less than a second
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
faults=$root/simulator/faults
work=$root/target/faults
tree=$work/tree
log=$work/log
# seconds for one run of one crate's tests, since a fault may keep them from ending
limit=${FAULTS_SECONDS:-300}

# the patches that were asked for, one path on each line
wanted() {
  local number found
  if [[ -z ${FAULTS:-} ]]; then
    printf '%s\n' "$faults"/*.patch
    return
  fi
  for number in ${FAULTS//,/ }; do
    found=$(compgen -G "$faults/$number-*.patch") || {
      echo "faults: FAULTS names $number, but simulator/faults has no $number-*.patch; write two digits, as in FAULTS=03,21" >&2
      return 1
    }
    printf '%s\n' "$found"
  done
}

# git looks for no repository above the copy, else it would take the paths from there
apply() { (cd "$tree" && GIT_CEILING_DIRECTORIES=$work git apply "$@"); }

check() {
  local patch failed=0
  while IFS= read -r patch; do
    git apply --check "$patch" 2>"$log.apply" && continue
    echo "faults: ${patch#"$root"/} no longer applies ($(tail -n 1 "$log.apply")); make the same fault in the code as it is now, and write its diff below the patch's first lines" >&2
    failed=1
  done <<<"$1"
  return "$failed"
}

# files get new modification times: cargo must not take what was built with the last fault for what is there now
copy_tree() {
  rm -rf "$tree"
  mkdir -p "$tree"
  git ls-files -z --cached --others --exclude-standard --deduplicate | xargs -0 ls -d 2>/dev/null |
    tar -c -T - | tar -x -m -C "$tree"
}

# cargo in the copy, given up after so many seconds (0: never)
in_tree() {
  local seconds=$1
  (cd "$tree" && CARGO_TARGET_DIR=$work/target NODEROTATION_NO_STORY=1 timeout "$seconds" cargo "${@:2}") >"$log" 2>&1
}

# Succeeds if the tests of a crate fail, and says which invariant or which tests.
catches() {
  local package=$1 status=0 by
  if ! in_tree 0 test --quiet --locked -p "$package" --no-run; then
    echo "$package does not build with it, see ${log#"$root"/}"
    return 2
  fi
  in_tree "$limit" test --quiet --locked -p "$package" || status=$?
  ((status != 0)) || return 1
  by=$(grep -oE '^seed [0-9]+: [A-Z][A-Za-z]+: .*' "$log" | sort -V | head -n 1 | sed -E 's/^(seed [0-9]+): ([A-Za-z]+): (.*)/\2 (\1: \3)/' || true)
  [[ -n $by ]] || by=$(sed -nE 's/^    ([a-z_:]+)$/\1/p' "$log" | sort -u | head -n 3 | paste -sd, | sed 's/,/, /g')
  ((status != 124)) || by="no end within $limit s"
  echo "${by:-see ${log#"$root"/}}, $package"
}

# Prints what caught a fault. Status 1: nothing did; 2: it does not build.
try() {
  local patch=$1 package packages by status
  packages=$(sed -nE 's/^Tests: //p' "$patch" | head -n 1)
  for package in noderotation-simulator $packages; do
    status=0
    by=$(catches "$package") || status=$?
    ((status == 1)) && continue
    echo "$by"
    return "$status"
  done
  return 1
}

mkdir -p "$work"
patches=$(wanted)
check "$patches"
[[ ${1:-} != --check ]] || exit 0

trap 'rm -rf "$tree"' EXIT
copy_tree
echo "building what the faults are tried on (the first time some minutes)"
in_tree 0 test --quiet --locked -p noderotation-simulator --no-run || { cat "$log" >&2; exit 1; }

count=$(wc -l <<<"$patches")
done_so_far=0
caught=0
survivors=()
while IFS= read -r patch <&3; do
  name=$(basename "$patch" .patch)
  done_so_far=$((done_so_far + 1))
  printf '[%*d of %d] %-40s ' "${#count}" "$done_so_far" "$count" "$name"
  apply "$patch"
  status=0
  by=$(try "$patch") || status=$?
  case $status in
    0) caught=$((caught + 1)) && echo "caught by $by" ;;
    1) survivors+=("$name") && echo "SURVIVES" ;;
    *) survivors+=("$name ($by)") && echo "ERROR: $by" ;;
  esac
  apply -R "$patch"
done 3<<<"$patches"

echo
echo "$caught of $count caught"
((${#survivors[@]} == 0)) || { printf 'survived: %s\n' "${survivors[@]}"; exit 1; }
