package main

import (
	"os"
	"runtime"
)

// leastProcessors is how many goroutines a server lets run at a time at least. Go comes to what the network has brought
// when a processor runs out of work, else once in 61 turns: under full load on two cores an echo inside a node
// took up to 175 ms with two, 94 ms with four, and so do Raft's heartbeats.
const leastProcessors = 4

// raiseProcessors gives a server on a small machine leastProcessors. It does nothing where the environment (GOMAXPROCS)
// or a limit of the container says otherwise: the kernel would take the processor away from who uses up a limit early.
func raiseProcessors() {
	if _, set := os.LookupEnv("GOMAXPROCS"); !set {
		runtime.GOMAXPROCS(processorsFor(runtime.NumCPU(), runtime.GOMAXPROCS(0)))
	}
}

// processorsFor a machine whose runtime has chosen some; 0 leaves it, as for GOMAXPROCS.
func processorsFor(machine, chosen int) int {
	if chosen < machine || machine >= leastProcessors {
		return 0
	}
	return leastProcessors
}
