#!/usr/bin/env bash
# Mutants: small faults put into the crates that decide, write or refuse, one at a time. Each must fail a test.
#
#   tests/mutants.sh              all of them, crate by crate (many hours)
#   tests/mutants.sh SAMPLE SEED  about SAMPLE mutants of `rotation`, chosen by SEED
#
# What is not a mutant, and why, stands in .cargo/mutants.toml. Reports are in target/mutants.
set -euo pipefail
cd "$(dirname "$0")/.."

VERSION=27.1.0
cargo mutants --version 2>/dev/null | grep -qF "$VERSION" || {
    echo "installing cargo-mutants $VERSION (a few minutes, once)"
    cargo install --locked cargo-mutants --version "$VERSION"
}
# dependencies are built once, for the mutants as for everything else
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}

# fewer histories for each mutant: what only one in thousands of them shows is `make simulate`'s
export NODEROTATION_ROTATIONS=${NODEROTATION_ROTATIONS:-300}

# mutants of one crate, judged by the tests of these crates
mutate() {
    local crate=$1 judges=$2
    shift 2
    cargo mutants --package "noderotation-$crate" --test-package "$judges" --output "target/mutants/$crate" \
        --baseline skip --timeout 90 --no-times --colors never "$@" -- --locked
}

if [[ $# -ge 2 ]]; then
    sample=$1 seed=$2
    all=$(cargo mutants --list --package noderotation-rotation | wc -l)
    shards=$(((all + sample - 1) / sample))
    echo "shard $((seed % shards)) of $shards, by SEED=$seed: about $sample of $all mutants of rotation"
    mkdir -p target/mutants
    code=0
    mutate rotation noderotation-rotation,noderotation-simulator \
        --sharding round-robin --shard "$((seed % shards))/$shards" || code=$?
    # 2: some survived; 3: some ran into the time limit, which is as good as caught
    ((code == 0 || code == 2 || code == 3)) || exit "$code"
    survivors=target/mutants/rotation/mutants.out/missed.txt
    survived=$(wc -l <"$survivors")
    echo "$survived of about $sample survived"
    # a sample has luck, good or bad: one in twenty is expected, one in four is a hole
    if ((survived * 4 > sample)); then
        echo "too many mutants survived; write the tests that they lack: $survivors" >&2
        exit 1
    fi
    exit
fi

mkdir -p target/mutants
failed=()
while read -r crate judges; do
    echo "== $crate"
    mutate "$crate" "$judges" || failed+=("$crate")
done <<'CRATES'
rotation noderotation-rotation,noderotation-simulator
shared noderotation-shared,noderotation-rotation,noderotation-webhook,noderotation-cli
cluster noderotation-cluster,noderotation-controller
controller noderotation-controller
webhook noderotation-webhook
certs noderotation-certs,noderotation-webhook
CRATES
if ((${#failed[@]})); then
    echo "mutants survived in: ${failed[*]} (target/mutants/CRATE/mutants.out/missed.txt)" >&2
    exit 1
fi
