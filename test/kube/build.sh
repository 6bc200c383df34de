#!/bin/sh
# Builds the programs of a real Kubernetes control plane into a cache outside git and prints that directory.
# Each finished program is renamed into place, so an interrupted build goes on where it stopped.
set -eu

all="etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok"

usage() {
	cat <<'TEXT'
usage: build.sh [where | NAME...]

Builds etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and kwok from the versions in go.mod
(or only the programs named) and prints the directory they are in as the last line of stdout.
Progress goes to stderr. Needs only Go.

  build.sh            all of them: about 12 CPU minutes the first time, nothing afterwards
  build.sh kubectl    only kubectl
  build.sh where      build nothing: print the directory, fail if a program is missing in it

The cache is ${BOURSE_CACHE:-$HOME/.cache/bourse}/kube/<hash>; directories of other hashes may be deleted.
TEXT
}

here=$(cd "$(dirname "$0")" && pwd)
mode=build
case "${1:-}" in
where)
	mode=where
	shift
	;;
-h | --help | help)
	usage
	exit 0
	;;
esac
names=${*:-$all}
for name in $names; do
	case " $all " in
	*" $name "*) ;;
	*)
		echo "build.sh: no program $name; there are: $all" >&2
		usage >&2
		exit 2
		;;
	esac
done

cache=${BOURSE_CACHE:-${HOME:?set HOME or BOURSE_CACHE}/.cache/bourse}/kube
hash=$(cd "$here" && cat build.sh go.sum etcd/go.sum | sha256sum | cut -c1-16)
bin=$cache/$hash/bin

missing() {
	for name in $names; do
		[ -x "$bin/$name" ] || printf '%s ' "$name"
	done
}

todo=$(missing)
if [ -n "$todo" ] && [ "$mode" = where ]; then
	echo "build.sh: not built yet: ${todo}(in $bin); run test/kube/build.sh" >&2
	exit 1
fi
if [ -z "$todo" ]; then
	echo "$bin"
	exit 0
fi

mkdir -p "$bin"
# Two builds at once would do everything twice, each at half the speed.
if command -v flock >/dev/null; then
	exec 9>"$cache/$hash/lock"
	flock -n 9 || {
		echo "kube: another build is running, waiting for it" >&2
		flock 9
	}
	todo=$(missing)
fi

export CGO_ENABLED=0 GOWORK=off
tmp=$cache/$hash/tmp.$$
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM HUP
mkdir -p "$tmp"

version() { (cd "$here" && go list -m -f '{{.Version}}' "$1"); }

# Turns go build -v into a line for every 200 packages; anything else it says goes through.
progress() {
	awk -v name="$1" '
		/^go: downloading / { down++; if (down % 100 == 0) say(down " modules downloaded"); next }
		NF == 1 && !/^#/    { built++; if (built % 200 == 0) say(built " packages compiled"); next }
		                    { print; fflush() }
		function say(what)  { print "kube:   " name ": " what; fflush() }' >&2
}

# go_build NAME DIR PACKAGE LDFLAGS. The exit status of go passes through a file, as sh has no pipefail.
go_build() {
	(cd "$2" && go build -v -buildvcs=false -ldflags "-s -w $4" -o "$tmp/$1" "$3" 2>&1 || : >"$tmp/failed") | progress "$1"
	[ ! -e "$tmp/failed" ]
}

build() {
	case "$1" in
	etcd) go_build etcd "$here/etcd" go.etcd.io/etcd/server/v3 "" ;;
	kwok) go_build kwok "$here" sigs.k8s.io/kwok/cmd/kwok "-X sigs.k8s.io/kwok/pkg/consts.Version=$(version sigs.k8s.io/kwok)" ;;
	*)
		v=$(version k8s.io/kubernetes)
		minor=${v#v1.}
		minor=${minor%%.*}
		# The admission code of the API server parses gitVersion.
		base=k8s.io/component-base/version
		go_build "$1" "$here" "k8s.io/kubernetes/cmd/$1" "-X $base.gitVersion=$v -X $base.gitMajor=1 -X $base.gitMinor=$minor \
			-X $base.gitTreeState=clean -X k8s.io/client-go/pkg/version.gitVersion=$v"
		;;
	esac
}

total=$(date +%s)
# shellcheck disable=SC2086 # a list of words
set -- $todo
n=0
for name in "$@"; do
	n=$((n + 1))
	echo "kube: building $name ($n of $#)" >&2
	began=$(date +%s)
	if ! build "$name"; then
		echo "kube: building $name failed" >&2
		exit 1
	fi
	mv "$tmp/$name" "$bin/$name"
	echo "kube: built $name in $(($(date +%s) - began)) s" >&2
done
if [ $# -gt 1 ]; then
	echo "kube: built $# programs in $(($(date +%s) - total)) s" >&2
fi
echo "$bin"
