package blueprint

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
)

// crowd is an exchange with so many blueprints of ten slices over a hundred clusters, all running.
func crowd(t failer, blueprints int) *exchange {
	x := newExchange(t)
	for i := range 100 {
		x.cluster(fmt.Sprintf("c%03d", i), "cpu=1000,memory=4Ti", fmt.Sprintf("0.%02d", i%7+1))
	}
	for i := range blueprints {
		var slices []string
		for j := range 10 {
			slices = append(slices, fmt.Sprintf("s%d=%d*cpu=100m,memory=64Mi", j, 1+j%3))
		}
		b := blueprint(fmt.Sprintf("b%04d", i), slices...)
		b.Spec.Strategy = []broker.BlueprintStrategy{"", broker.StrategySpread, broker.StrategyPack, broker.StrategyCheapest, broker.StrategyBalanced}[i%5]
		x.create(b)
	}
	x.rest()
	return x
}

// A new leader looks at 1,000 blueprints of 10 slices over 100 clusters in under two seconds, and finds
// nothing to do.
func TestTakingOverAThousandBlueprints(t *testing.T) {
	if testing.Short() || underRace {
		t.Skip("takes minutes, and says nothing of the time it takes without the race detector")
	}
	x := crowd(t, 1000)
	require.Equal(t, broker.BlueprintActive, x.get("b0999").Status.Phase)
	x.restore() // nothing is decoded yet
	commands, steps := x.commands, 0
	start, used := time.Now(), cpuTime(t)
	x.begin()
	for !x.idle() {
		x.enter(x.plan())
		steps++
	}
	took := cpuTime(t) - used // on a machine that is busy with other things too
	require.Equal(t, commands, x.commands, "a steady reconciliation proposes nothing")
	t.Logf("%d slices, %d steps: %s of processor time, %s in all", len(x.rows()), steps, took, time.Since(start))
	require.Less(t, took, 2*time.Second)

	used = cpuTime(t)
	x.now += millis(DefaultResync)
	x.run()
	require.Equal(t, commands, x.commands)
	t.Logf("resync: %s of processor time", cpuTime(t)-used)
}

func cpuTime(t *testing.T) time.Duration {
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkTakeOver is a term's start over 100 blueprints of 10 slices.
func BenchmarkTakeOver(b *testing.B) {
	x := crowd(b, 100)
	for b.Loop() {
		x.begin()
		x.run()
	}
}

// BenchmarkReconcile is one look at a blueprint of 10 slices over 100 clusters.
func BenchmarkReconcile(b *testing.B) {
	x := crowd(b, 1)
	fed, shares, object := newFederation(x.state), x.rows(), x.get("b0000")
	for b.Loop() {
		if r := reconcile(x.cfg.Policy, fed, object, shares, x.now); len(r.changes) > 0 {
			b.Fatal("it is not steady")
		}
	}
}

// restore reads the state anew from a snapshot, as a node that was just started has it.
func (x *exchange) restore() {
	var snapshot bytes.Buffer
	require.NoError(x.t, fsm.WriteSnapshot(&snapshot, x.state))
	state, err := fsm.ReadSnapshot(&snapshot)
	require.NoError(x.t, err)
	require.Equal(x.t, x.state.Hash(), state.Hash())
	x.state = state
}
