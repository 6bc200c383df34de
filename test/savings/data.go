package main

import (
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/bourse-dev/bourse/allocation"
)

// book is where the prices of a federation's clusters come from.
type book struct {
	name    string
	source  string
	regions []allocation.Prices
}

const (
	nano = 1e9
	mib  = 1 << 20
	gib  = 1 << 30
)

// readPrices makes two books of one file, list and spot. A region has two shapes of as many cores and
// different memory; the difference is the price of memory, the rest that of the cores.
func readPrices(path string) ([]book, error) {
	rows, err := readTable(path, "cloud", "region", "vcpus", "memory_gib", "usd_per_hour", "spot_usd_per_hour")
	if err != nil {
		return nil, err
	}
	list := book{name: "list", source: "list prices of cloud regions"}
	spot := book{name: "spot", source: "spot prices of the same regions"}
	first := map[string][]float64{}
	for _, row := range rows {
		v, err := numbers(row[2:])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		region := row[0] + "/" + row[1]
		one, paired := first[region]
		if !paired {
			first[region] = v
			continue
		}
		for i, b := range []*book{&list, &spot} {
			if prices, ok := unitPrices(one[0], one[1], one[2+i], v[0], v[1], v[2+i]); ok {
				b.regions = append(b.regions, prices)
			}
		}
	}
	if len(list.regions) == 0 || len(spot.regions) == 0 {
		return nil, fmt.Errorf("%s: no region has two shapes that tell cores from memory", path)
	}
	return []book{list, spot}, nil
}

// unitPrices solves cores*c + gib*g = price for two shapes. Not ok where either price comes out as
// zero or less: that happens to spot prices, whose shapes have markets of their own.
func unitPrices(cores1, gib1, price1, cores2, gib2, price2 float64) (allocation.Prices, bool) {
	det := cores1*gib2 - cores2*gib1
	if det == 0 {
		return allocation.Prices{}, false
	}
	core := (price1*gib2 - price2*gib1) / det
	memory := (cores1*price2 - cores2*price1) / det
	if core <= 0 || memory <= 0 {
		return allocation.Prices{}, false
	}
	return pricesOf(core, memory), true
}

func pricesOf(core, memory float64) allocation.Prices {
	return allocation.Prices{Priced: true, Unit: []allocation.UnitPrice{
		{Resource: allocation.CPU, Nano: int64(core * nano)},
		{Resource: allocation.Memory, Nano: int64(memory * nano)},
	}}
}

// generatedPrices are made up, of the size that the examples in the documentation have: real ones lie
// far closer together and far below 1, where the cost score hardly moves.
func generatedPrices() book {
	random := rand.New(rand.NewPCG(1, 1))
	b := book{name: "generated", source: "made up: a core 0.20 to 1.00 an hour, a GiB a tenth of that"}
	for range 100 {
		core := 0.2 + 0.8*random.Float64()
		b.regions = append(b.regions, pricesOf(core, core/10))
	}
	return b
}

// demand is one request as somebody once made it: how much, when in the week, for how long.
type demand struct {
	cpuMilli, memory int64
	at, life         int64 // seconds
}

const week = 7 * 24 * 3600

// readSizes reads requests; those without a usable lifetime are left out.
func readSizes(path string) ([]demand, error) {
	rows, err := readTable(path, "cpu_milli", "memory_mib", "creation_s", "deletion_s")
	if err != nil {
		return nil, err
	}
	var list []demand
	for _, row := range rows {
		v, err := numbers(row)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		d := demand{int64(v[0]), int64(v[1]) * mib, int64(v[2]) % week, int64(v[3] - v[2])}
		if d.cpuMilli > 0 && d.memory > 0 && d.life > 0 {
			list = append(list, d)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no request with cpu, memory and a lifetime", path)
	}
	return list, nil
}

// generatedSizes are made up: 1 to 16 cores, 2 to 8 GiB for each, minutes to days, at any time.
func generatedSizes() []demand {
	random := rand.New(rand.NewPCG(2, 2))
	list := make([]demand, 4000)
	for i := range list {
		cpu := int64(logUniform(random, 1000, 16_000))
		perCore := logUniform(random, 2*gib, 8*gib)
		list[i] = demand{cpu, int64(float64(cpu) / 1000 * perCore), random.Int64N(week), int64(logUniform(random, 60, week))}
	}
	return list
}

// readTable reads the named columns of a CSV file with a heading.
func readTable(path string, columns ...string) (rows [][]string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	all, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s is empty", path)
	}
	at := map[string]int{}
	for i, name := range all[0] {
		at[name] = i
	}
	for _, column := range columns {
		if _, ok := at[column]; !ok {
			return nil, fmt.Errorf("%s has no column %s", path, column)
		}
	}
	for _, line := range all[1:] {
		row := make([]string, len(columns))
		for i, column := range columns {
			row[i] = line[at[column]]
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func numbers(row []string) ([]float64, error) {
	out := make([]float64, len(row))
	for i, text := range row {
		if text == "" {
			continue // left out by the provider: 0 is unusable, and is treated as such
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}
