// Command sim runs whole exchanges on a simulated log, network, disk and clock: one seed, one trace.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
)

func main() {
	var o options
	flag.Uint64Var(&o.from, "from", 1, "the first seed")
	flag.Uint64Var(&o.seeds, "seeds", 200, "how many seeds")
	flag.IntVar(&o.workers, "workers", 2, "how many seeds at a time")
	seed := flag.Uint64("seed", 0, "one seed, told step by step")
	skip := flag.String("skip", "", "faults to leave out of that seed, by number")
	steps := flag.Int("steps", 0, "heal after so many steps of that seed")
	every := flag.Bool("v", false, "tell every event of that seed")
	flag.Parse()
	debug.SetGCPercent(1000) // a trace leaves nothing behind
	if *seed != 0 {
		if err := replay(os.Stdout, *seed, *skip, *steps, *every); err != nil {
			fmt.Println("FAILED:", err)
			os.Exit(1)
		}
		fmt.Println("no violation")
		return
	}
	if err := runSeeds(os.Stdout, o); err != nil {
		fmt.Println("FAILED:", err)
		os.Exit(1)
	}
}
