#!/usr/bin/env bash
# The benchmark: the parts alone (go test -bench), then whole exchanges beside what one would build instead.
# One Markdown table goes to stdout, progress to stderr.
set -euo pipefail

usage() {
	cat <<'TEXT'
usage: bench.sh [flags of test/bench]

  QUICK=1          measure less: under 10 minutes instead of under 45
  PROFILE=DIR      build our server with pprof in it, run only the section profile, leave a CPU profile of each node in DIR
  BOURSE_KUBE_BIN  use etcd and kube-apiserver of this directory

With flags, as in bench.sh -only failover,watch, the parts alone are left out. bench.sh -help lists them.
TEXT
}

case "${1:-}" in
-h | --help | help)
	usage
	exit 0
	;;
esac
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

if [ -z "${BOURSE_KUBE_BIN:-}" ]; then
	BOURSE_KUBE_BIN=$(test/kube/build.sh etcd kube-apiserver)
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# CGO_ENABLED=0 as in test/kube: the Kubernetes libraries are compiled once.
export CGO_ENABLED=0

bourse=$root/bin/bourse
if [ -n "${PROFILE:-}" ]; then
	mkdir -p "$PROFILE"
	BOURSE_PROFILE=$(cd "$PROFILE" && pwd)
	export BOURSE_PROFILE
	bourse=$work/bourse
	# An overlay adds the file to the program; the product itself has no way to be profiled from outside.
	printf '{"Replace": {"%s/cmd/bourse/profile.go": "%s/test/bench/profile.go.txt"}}' "$root" "$root" >"$work/overlay.json"
	go build -overlay "$work/overlay.json" -o "$bourse" ./cmd/bourse
	set -- -only profile "$@"
else
	make -s build
fi
if [ $# -eq 0 ]; then
	long=1s
	[ -z "${QUICK:-}" ] || long=5x
	go test -run '^$' -bench Decide -benchtime "$long" -benchmem ./allocation/ >&2
	go test -run '^$' -bench . -benchtime "$long" -benchmem ./fsm/ >&2
fi
(cd test/bench && go test -vet=off . >&2 && go build -o "$work/bench" .)
"$work/bench" -bourse "$bourse" -kube "$BOURSE_KUBE_BIN" "$@"
