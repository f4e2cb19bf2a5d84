#!/usr/bin/env bash
# Mutants: small faults put into the crates that decide, write or refuse, one at a time. Each must fail a test.
#
#   tests/mutants.sh                 all of them, crate by crate (some hours)
#   tests/mutants.sh all CRATE ...   those of these crates
#   tests/mutants.sh sample N SEED   about N mutants of `rotation`, chosen by SEED; fails if more than one in ten survives
#
# A mutant is judged by the tests of its own crate first, which takes seconds, and only what survives them by the other
# crates' tests that run its code. What is no mutant, and why, stands in .cargo/mutants.toml; which may survive, and why, in
# tests/mutants-accepted.txt. Reports are in target/mutants.
set -euo pipefail
cd "$(dirname "$0")/.."

VERSION=27.1.0
ALLOWED=tests/mutants-accepted.txt
CRATES=(rotation shared cluster controller webhook certs)

# the other crates whose tests run a crate's code; empty where there is none
judges() {
    case $1 in
    rotation) echo noderotation-simulator,noderotation-controller ;;
    shared) echo noderotation-rotation,noderotation-webhook,noderotation-cli ;;
    cluster) echo noderotation-controller ;;
    certs) echo noderotation-webhook ;;
    esac
}

is_installed() { cargo mutants --version 2>/dev/null | grep -qF "$VERSION"; }

# mutants of one crate that have survived so far by the reports in a folder, judged by the tests of these crates
judge() {
    local crate=$1 reports=$2 tests=$3 code=0
    shift 3
    # fewer histories for each mutant: what only one in thousands of them shows is `make simulate`'s
    NODEROTATION_ROTATIONS=${NODEROTATION_ROTATIONS:-300} \
        CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target} \
        cargo mutants --jobs "${MUTANTS_JOBS:-1}" --package "noderotation-$crate" --test-package "$tests" --output "$reports" \
        --iterate --profile mutants --baseline skip --timeout 60 --build-timeout 300 --no-times --colors never "$@" -- --locked || code=$?
    # 2: some survived; 3: some ran into the time limit, which is as good as caught
    ((code == 0 || code == 2 || code == 3)) || exit "$code"
}

# survivors by the reports in a folder that are not accepted
unaccepted() {
    # a line moves with every change above it: the name of the file and what was changed tell a mutant
    sed -E 's/:[0-9]+:[0-9]+: /: /' "$1/survivors.txt" | grep -vxFf <(grep -v '^#' "$ALLOWED" | grep -v '^$') || true
}

try_crate() {
    local crate=$1 reports=$2 missed=$2/mutants.out/missed.txt
    shift 2
    mkdir -p "$reports"
    judge "$crate" "$reports" "noderotation-$crate" "$@"
    cp "$missed" "$reports/survivors.txt"
    if [[ -n $(judges "$crate") && -s $missed ]]; then
        judge_again "$crate" "$reports"
        # what else the second run tries, the first one has caught
        grep -xFf "$missed" "$reports/survivors.txt" > "$reports/survivors.new" || true
        mv "$reports/survivors.new" "$reports/survivors.txt"
    fi
}

# by name: a shard of what is left would be one of others
judge_again() {
    local crate=$1 reports=$2 line only=()
    while IFS= read -r line; do
        only+=(--re "^$(sed 's/[][\\.*^$+?(){}|]/\\&/g' <<<"$line")\$")
    done <"$reports/survivors.txt"
    judge "$crate" "$reports" "$(judges "$crate")" "${only[@]}"
}

case ${1:-all} in
sample)
    sample=$2 seed=$3
    if ! is_installed; then
        echo "skipped: cargo-mutants $VERSION is not installed (cargo install --locked cargo-mutants --version $VERSION)"
        exit
    fi
    all=$(cargo mutants --list --package noderotation-rotation | wc -l)
    shards=$(((all + sample - 1) / sample))
    echo "shard $((seed % shards)) of $shards, by SEED=$seed: about $sample of $all mutants of rotation"
    rm -rf target/mutants/sample
    try_crate rotation target/mutants/sample --sharding round-robin --shard "$((seed % shards))/$shards"
    survivors=$(unaccepted target/mutants/sample)
    # a sample estimates the share, and new code may bring a mutant that nobody has judged yet: it is told, and the whole run
    # decides
    if (($(grep -c . <<<"$survivors") * 10 <= sample)); then
        [[ -z $survivors ]] || printf 'survived: %s\n' "$survivors"
        echo "at most one in ten survived"
        exit
    fi
    ;;
all)
    shift || true
    is_installed || cargo install --locked cargo-mutants --version "$VERSION"
    [[ $# -gt 0 ]] || set -- "${CRATES[@]}"
    for crate in "$@"; do
        echo "== mutants of $crate"
        try_crate "$crate" "target/mutants/$crate"
    done
    survivors=$(for crate in "$@"; do unaccepted "target/mutants/$crate"; done)
    ;;
*)
    echo "usage: tests/mutants.sh [all CRATE ... | sample N SEED]" >&2
    exit 2
    ;;
esac
if [[ -n $survivors ]]; then
    printf '%s\n' "$survivors"
    echo "these mutants survived: write the tests that they lack, or say in $ALLOWED why nobody could notice them" >&2
    exit 1
fi
echo "no mutant survived, $ALLOWED apart"
