package simulated

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
)

// Config says what to simulate. Start from Default.
type Config struct {
	// Name of the cluster: a DNS label. Nodes are named sim-<name>-<n>.
	Name string
	// Seed: the same seed gives the same cluster and the same sequence of events.
	Seed uint64
	// Nodes that stay. One more comes and goes.
	Nodes int
	// CPUPerNode and MemoryPerNode are quantities.
	CPUPerNode    string
	MemoryPerNode string
	// GPUsPerNode are nvidia.com/gpu; no pod asks for one.
	GPUsPerNode int
	// LowPercent and HighPercent bound the share of all cores that pods request.
	LowPercent  int
	HighPercent int
	// Every is the time between two events.
	Every time.Duration
	// Clock is replaced by tests.
	Clock clock.WithTicker
}

// Default is a small cluster of the name. The seed is the name's, so that rome is always the same rome.
func Default(name string) Config {
	return Config{
		Name:          name,
		Seed:          seedOf(name),
		Nodes:         DefaultNodes,
		CPUPerNode:    DefaultCPUPerNode,
		MemoryPerNode: DefaultMemoryPerNode,
		LowPercent:    DefaultLowPercent,
		HighPercent:   DefaultHighPercent,
		Every:         DefaultEvery,
		Clock:         clock.RealClock{},
	}
}

// Validate reports all faults at once.
func (c *Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for _, msg := range validation.IsDNS1123Label(c.Name) {
		fault("name %q: %s", c.Name, msg)
	}
	if c.Nodes < 1 || c.Nodes > MaxNodes {
		fault("nodes %d: must be within 1 and %d", c.Nodes, MaxNodes)
	}
	for what, text := range map[string]string{"cpu per node": c.CPUPerNode, "memory per node": c.MemoryPerNode} {
		if q, err := resource.ParseQuantity(text); err != nil || q.Sign() <= 0 {
			fault("%s %q: must be a positive quantity", what, text)
		}
	}
	if c.GPUsPerNode < 0 {
		fault("gpus per node %d: must not be negative", c.GPUsPerNode)
	}
	if c.LowPercent < 0 || c.HighPercent > 100 || c.LowPercent > c.HighPercent {
		fault("utilisation %d to %d percent: must be a range within 0 and 100", c.LowPercent, c.HighPercent)
	}
	if c.Every < MinEvery {
		fault("interval %s: must be at least %s", c.Every, MinEvery)
	}
	if c.Clock == nil {
		fault("clock: missing")
	}
	return errors.Join(faults...)
}
