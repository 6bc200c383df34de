package main

import "time"

// suite is one way to notice a bug: tests of one room, or a program that ends non-zero at a violation.
type suite struct {
	name string
	dir  string // of the package; its first part is the room that it looks at from above
	run  string // which tests; empty: a program
	skip string
	args []string // for the program or the test binary
}

// rapidBriefly: a failure needn't be made small, nor kept.
var rapidBriefly = []string{"-rapid.nofailfile", "-rapid.shrinktime=0s"}

// suites lists them from the cheapest to the dearest.
var suites = []suite{
	{name: "fsm rules", dir: "fsm", run: ".", skip: "TestRandomSequences", args: rapidBriefly},
	{name: "fsm random sequences", dir: "fsm", run: "TestRandomSequences", args: rapidBriefly},
	{name: "store", dir: "store", run: "TestA|TestRestore|TestWho|TestWhat"},
	{name: "raft in memory", dir: "cluster", run: "TestRaftInMemory"},
	{name: "cluster steps and terms", dir: "cluster", run: "TestAStep|TestEntries|TestTheEnd|TestLeadership|TestTakingOver|TestStateTime|TestIntents"},
	{name: "cluster of real nodes", dir: "cluster", run: "TestARetry|TestThreeNodes|TestNoReadPoint"},
	{name: "advertisement life", dir: "advertisement", run: "TestLife", args: rapidBriefly},
	{name: "reservation lives", dir: "reservation", run: "TestLife", args: rapidBriefly},
	{name: "simulator", dir: "test/sim", args: []string{"-seeds", "500"}},
}

// rooms in the order of the house: what lies in one can't be seen from those before it.
var rooms = []string{"fsm", "store", "cluster", "advertisement", "reservation", "server", "cmd", "test"}

const (
	// caughtWithin: a bug that takes longer to notice, building included, counts as missed.
	caughtWithin = 5 * time.Minute

	buildWithin = 3 * time.Minute
	runWithin   = 2 * time.Minute
	// afterFailure the suite is ended, unless it has by itself: time to print that it crashed.
	afterFailure = time.Second
)
