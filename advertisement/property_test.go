package advertisement

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
)

// Whatever agents send and leaders do: each report is answered once, the newest session's figures
// count, the phase follows from who was heard when, and the room comes to rest.
func TestLifeOfAnOffer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := newExchange(t)
		x.create("berlin")
		x.run()
		agents := []*process{x.agent("berlin", 1), x.agent("berlin", 2)}
		var heardAt fsm.Millis
		withdrawn := false
		cpu := map[*cluster.Intent]string{}
		newest := ""
		// send waits for the answer: nothing is in flight between actions.
		send := func(p *process, size string) {
			in := p.report(size)
			cpu[in] = size
			for x.run(); len(x.answers[in]) == 0; {
				x.pass(1)
			}
			if x.answer(in).Refusal == nil {
				heardAt, newest = x.now, size
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				p := agents[rapid.IntRange(0, 1).Draw(t, "agent")]
				in := p.send(fsm.Report{Open: true})
				x.pass(minReportInterval)
				require.Nil(t, x.answer(in).Refusal)
				if epoch := x.answer(in).Epoch; epoch != p.epoch {
					p.epoch, p.sequence = epoch, 0
				}
			},
			"report": func(t *rapid.T) {
				send(agents[rapid.IntRange(0, 1).Draw(t, "agent")], fmt.Sprint(rapid.IntRange(1, 3).Draw(t, "cpu")))
			},
			"another process under the same session": func(t *rapid.T) {
				p := agents[rapid.IntRange(0, 1).Draw(t, "agent")]
				clone := *p
				clone.sequence = uint64(rapid.IntRange(0, 5).Draw(t, "sequence"))
				send(&clone, "9")
			},
			"withdraw": func(t *rapid.T) {
				withdrawn = rapid.Bool().Draw(t, "withdrawn")
				x.lend("berlin", broker.Lending{Withdrawn: withdrawn})
				x.run()
			},
			"time": func(t *rapid.T) {
				x.pass(rapid.SampledFrom([]fsm.Millis{second, 30 * second, staleAfter, 3 * staleAfter}).Draw(t, "passes"))
			},
			"take over": func(*rapid.T) {
				x.begin()
				if x.phase("berlin") == "Active" {
					heardAt = x.now // grace
				} else if heardAt > 0 {
					heardAt = -1 // nobody is heard yet in this term
				}
				x.run()
			},
			"": func(t *rapid.T) {
				x.run()
				account := x.state.Row(key("berlin")).Account
				if newest != "" {
					require.True(t, account.Allocatable.Equal(amounts(newest)), "the newest accepted figures count")
				}
				want := "Stale"
				switch {
				case withdrawn:
					want = "Withdrawn"
				case heardAt > 0 && x.now < heardAt+staleAfter:
					want = "Active"
				}
				require.Equal(t, want, x.phase("berlin"))
				require.Equal(t, want != "Active", x.state.Row(key("berlin")).Ledger.Closed)
				for in := range cpu {
					x.answer(in)
				}
			},
		})
	})
}
