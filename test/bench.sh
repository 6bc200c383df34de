#!/usr/bin/env bash
# The benchmark table: the decision alone (go test -bench), then an exchange of three processes.
# QUICK=1 measures less.
set -euo pipefail
cd "$(dirname "$0")/.."

go test -run '^$' -bench 'Decide' -benchmem ./allocation/
go test -run '^$' -bench . -benchmem ./fsm/
make -s build
go run ./test/bench
