#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (30s), one after another; PACKAGES (all) says where to look.
# An input that fails is kept by Go under the package's testdata/fuzz and runs as a test from then on.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${FUZZTIME:-30s}
count=0
for file in $(grep -rl --include=*_test.go '^func Fuzz' ${PACKAGES:-.} | sort); do
	package=$(dirname "$file")
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\).*/\1/p' "$file"); do
		count=$((count + 1))
		printf '=== %2d. ./%s %s for %s\n' $count "${package#./}" "$target" "$time"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./${package#./}"
	done
done
[ $count -gt 0 ] || { echo "no fuzz target under ${PACKAGES:-.}" >&2; exit 1; }
printf '%d fuzz targets, no failure\n' $count
