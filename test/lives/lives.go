// Package lives sets how long property tests run, where the command line does not.
package lives

import (
	"flag"
	"os"
)

// Default sets flags of the test binary that were not given, before m.Run.
func Default(flags map[string]string) {
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range flags {
		if given[name] {
			continue
		}
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
}

// Long says that there is time: `make test-long`.
func Long() bool { return os.Getenv("BOURSE_LONG") != "" }
