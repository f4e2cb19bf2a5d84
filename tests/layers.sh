#!/usr/bin/env bash
# The pure crates know no client, runtime, clock or logger, and arrows between crates point down only.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
say() { echo "layers: $1" >&2; failed=1; }

# names of all crates that a package is built with
tree() { cargo tree --locked -p "$1" -e normal,build --prefix none --format '{p}' | cut -d' ' -f1 | sort -u; }

for pure in noderotation-shared noderotation-rotation noderotation-simulator; do
  for banned in kube kube-client kube-runtime tokio hyper reqwest rustls async-std smol tracing log env_logger chrono time; do
    tree "$pure" | grep -qx "$banned" && say "$pure is built with $banned"
  done
done
# clocks and the environment are functions, not crates
if grep -nE 'Timestamp::now|Zoned::now|SystemTime|Instant::now|std::env::|std::fs::|std::net::' -r shared/src rotation/src simulator/src; then
  say "a pure crate asks for the time or for its surroundings"
fi

# package: what it may know of ours
allowed() {
  case $1 in
    noderotation-shared) echo ;;
    noderotation-rotation) echo "noderotation-shared" ;;
    noderotation-simulator) echo "noderotation-shared noderotation-rotation" ;;
    noderotation-cluster) echo "noderotation-shared" ;;
    noderotation-process) echo ;;
    noderotation-certs) echo "noderotation-shared noderotation-cluster" ;;
    noderotation-controller) echo "noderotation-shared noderotation-rotation noderotation-cluster noderotation-process" ;;
    noderotation-webhook) echo "noderotation-shared noderotation-cluster noderotation-process noderotation-certs" ;;
    noderotation-cli) echo "noderotation-shared" ;;
    noderotation-fuzz) echo "noderotation-shared noderotation-cluster noderotation-process noderotation-certs noderotation-webhook" ;;
    noderotation-rig) echo ;;
    noderotation-tests) echo "noderotation-shared noderotation-rotation noderotation-rig" ;;
    *) echo "?" ;;
  esac
}
for package in $(cargo metadata --locked --no-deps --format-version 1 | grep -o '"name":"noderotation-[a-z]*","version"' | cut -d'"' -f4 | sort -u); do
  may=$(allowed "$package")
  [[ $may != "?" ]] || say "$package is not in the list of tests/layers.sh"
  for other in $(tree "$package" | grep '^noderotation-' | grep -vx "$package"); do
    [[ " $may " == *" $other "* ]] || say "$package must not know $other"
  done
done
exit $failed
