// Command savings checks by simulation what the allocator's weights save: a
// federation lends its spare capacity for a week, and the same requests are
// placed once by each way to choose. All of them ask the real allocator
// (allocation.Market) what fits and what it costs. The result is Markdown on
// stdout, progress goes to stderr. The same flags give the same table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
)

func main() {
	prices := flag.String("prices", "../shared/data/region-prices.csv", "prices of cloud regions; without the file only generated ones")
	sizes := flag.String("sizes", "../shared/data/request-sizes.csv", "requests as made to a real cluster; without the file generated ones")
	quick := flag.Bool("quick", os.Getenv("QUICK") != "", "fewer federations and seeds")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *prices, *sizes, *quick)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "savings:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pricesFile, sizesFile string, quick bool) error {
	s := study{clusters: []int{4, 12, 50}, loads: []float64{0.4, usualLoad, 1}, seeds: 20}
	if quick {
		s.clusters, s.loads, s.seeds = []int{4, 12}, []float64{usualLoad}, 5
	}
	var about string
	var err error
	if s.books, err = readPrices(pricesFile); errors.Is(err, fs.ErrNotExist) {
		about = "Prices are GENERATED only: no file of real ones was given. "
	} else if err != nil {
		return err
	}
	s.books = append(s.books, generatedPrices())
	s.sizes, err = readSizes(sizesFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.sizes = generatedSizes()
		about += "Requests are GENERATED: no file of real ones was given."
	case err != nil:
		return err
	default:
		about += fmt.Sprintf("Requests: %d real ones, with their sizes, lifetimes and time of the week.", len(s.sizes))
	}
	r, err := s.run(ctx, os.Stderr)
	if err != nil {
		return err
	}
	fmt.Println(about)
	for _, b := range s.books {
		fmt.Printf("Prices %q: %s, %d of them.\n", b.name, b.source, len(b.regions))
	}
	fmt.Println()
	return s.write(os.Stdout, r)
}
