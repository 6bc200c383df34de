#!/bin/sh
# The end-to-end suite: builds the control planes' programs (first time only) and bourse, then runs test/kube/e2e.
set -eu

usage() {
	cat <<'TEXT'
usage: e2e.sh [go test flags]

Runs real Kubernetes control planes, broker nodes, agents and kubectl on loopback. Needs only Go; about 12 CPU minutes
more the first time, under 5 minutes afterwards. Flags are added to go test, as in: e2e.sh -run TestExchange/bad

  BOURSE_BIN       test this program instead of building one
  BOURSE_KUBE_BIN  use the control planes' programs in this directory
  BOURSE_E2E_DIR   keep data and logs of a failed run in this directory (default: the system's temporary one)
TEXT
}

case "${1:-}" in
-h | --help | help)
	usage
	exit 0
	;;
esac
root=$(cd "$(dirname "$0")/.." && pwd)
began=$(date +%s)
say() { echo "e2e: $(($(date +%s) - began)) s: $*" >&2; }

if [ -z "${BOURSE_KUBE_BIN:-}" ]; then
	say "building the control planes' programs, if they are not yet"
	BOURSE_KUBE_BIN=$("$root/test/kube/build.sh")
fi
if [ -z "${BOURSE_BIN:-}" ]; then
	say "building bourse"
	make -s -C "$root" build
	BOURSE_BIN=$root/bin/bourse
fi
export BOURSE_KUBE_BIN BOURSE_BIN

say "running the suite against $BOURSE_BIN"
status=0
(cd "$root/test/kube" && CGO_ENABLED=0 go test -count=1 -v -timeout 25m "$@" ./e2e/...) || status=$?
if [ "$status" -eq 0 ]; then
	say "passed"
else
	say "FAILED"
fi
exit "$status"
