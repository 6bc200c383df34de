package allocation

import (
	"fmt"
	"math"
	"math/bits"
	"sort"
	"strings"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// Unpriced stands where the price of a request would, for a cluster that states no prices.
const Unpriced = broker.Unpriced

const (
	milliPerCore = 1000
	gibShift     = 30 // byte resources are priced per 2^30 bytes
)

// Prices is a cluster's price list. The zero value is Unpriced.
type Prices struct {
	Priced bool
	// PerHour is one price per core-hour, all included, in billionths; where it is above 0 Unit is empty.
	PerHour int64
	// Unit prices per hour, sorted by resource. A resource that is not listed costs 0.
	Unit []UnitPrice
}

// UnitPrice is the price of one core, one GiB, or one piece of a resource for one hour, in billionths.
type UnitPrice struct {
	Resource string
	Nano     int64
}

// ParsePrices reads an advertisement's cost map and its cost.* annotations, which win key by key. An
// annotated perHour also replaces the map's unit prices, and an annotated unit price the map's
// perHour: the two kinds never mix, and within one source both at once are an error.
func ParsePrices(cost, annotations map[string]string) (p Prices, currency string, err error) {
	stated, err := parseCost(cost)
	if err != nil {
		return Prices{}, "", fmt.Errorf("cost: %w", err)
	}
	marked := map[string]string{}
	for key, value := range annotations {
		if name, ok := strings.CutPrefix(key, broker.CostAnnotationPrefix); ok {
			marked[name] = value
		}
	}
	annotated, err := parseCost(marked)
	if err != nil {
		return Prices{}, "", fmt.Errorf("annotations %s*: %w", broker.CostAnnotationPrefix, err)
	}
	if annotated.currency == "" {
		annotated.currency = stated.currency
	}
	return stated.overlaid(annotated), annotated.currency, nil
}

// costSource is one of the two places where prices are stated.
type costSource struct {
	currency string
	perHour  int64
	allIn    bool
	unit     map[string]int64
}

func parseCost(list map[string]string) (costSource, error) {
	src := costSource{unit: map[string]int64{}}
	for key, value := range list {
		if key == broker.CostCurrency {
			src.currency = value
			continue
		}
		nano, err := broker.ParsePrice(value)
		if err != nil {
			return src, fmt.Errorf("%s: %w", key, err)
		}
		if nano > broker.MaxUnitPrice {
			return src, fmt.Errorf("%s: price %s %w: at most %s", key, value, broker.ErrTooLarge, broker.FormatPrice(broker.MaxUnitPrice))
		}
		if key == broker.CostPerHour {
			src.perHour, src.allIn = nano, true
		} else {
			src.unit[key] = nano
		}
	}
	if src.allIn && len(src.unit) > 0 {
		return src, fmt.Errorf("%s includes everything and stands alone: %w", broker.CostPerHour, broker.ErrMalformed)
	}
	return src, nil
}

func (s costSource) overlaid(by costSource) Prices {
	switch {
	case by.allIn:
		return Prices{Priced: true, PerHour: by.perHour}
	case len(by.unit) == 0 && s.allIn:
		return Prices{Priced: true, PerHour: s.perHour}
	}
	unit := s.unit
	for name, nano := range by.unit {
		unit[name] = nano
	}
	p := Prices{Priced: len(unit) > 0}
	for name, nano := range unit {
		p.Unit = append(p.Unit, UnitPrice{name, nano})
	}
	sort.Slice(p.Unit, func(i, j int) bool { return p.Unit[i].Resource < p.Unit[j].Resource })
	return p
}

// rate is the price of one unit of a resource, from 0 to MaxUnitPrice. perHour is the same as a price
// for cpu and for nothing else.
func (p *Prices) rate(resource string) int64 {
	if p.PerHour > 0 {
		if resource == CPU {
			return min(p.PerHour, broker.MaxUnitPrice)
		}
		return 0
	}
	for i := range p.Unit {
		if p.Unit[i].Resource == resource {
			return max(0, min(p.Unit[i].Nano, broker.MaxUnitPrice))
		}
	}
	return 0
}

// Price is what the amounts cost per hour, in billionths: each addend rounded down, saturating;
// Unpriced where the list states none. A Market computes the same from its columns.
func (p *Prices) Price(amounts Amounts) int64 {
	if !p.Priced {
		return Unpriced
	}
	var sum int64
	for _, a := range amounts {
		sum = saturatingAdd(sum, kindOf(a.Resource).price(uint64(a.Value), uint64(p.rate(a.Resource))))
	}
	return sum
}

// unitKind says in which unit a resource is priced.
type unitKind uint8

const (
	pieces unitKind = iota
	cores
	bytes
)

func kindOf(resource string) unitKind {
	switch {
	case resource == CPU:
		return cores
	case broker.InBytes(resource):
		return bytes
	}
	return pieces
}

// price is amount x unit price, rounded down, saturating. The fast path of each kind has no division.
func (k unitKind) price(amount, nano uint64) int64 {
	hi, lo := bits.Mul64(amount, nano)
	switch k {
	case cores:
		if hi == 0 {
			return int64(lo / milliPerCore)
		}
		if hi >= milliPerCore/2 {
			return math.MaxInt64
		}
		quotient, _ := bits.Div64(hi, lo, milliPerCore)
		return int64(quotient)
	case bytes:
		if hi >= 1<<(gibShift-1) {
			return math.MaxInt64
		}
		return int64(hi<<(64-gibShift) | lo>>gibShift)
	}
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}
