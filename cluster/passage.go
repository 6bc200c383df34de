package cluster

import "github.com/bourse-dev/bourse/fsm"

// passage is the room for intents that no other takes: it proposes them as they stand, all that
// wait in one step, and answers with what became of them.
type passage struct{}

func (passage) Name() string                      { return "passage" }
func (passage) Takes(*Intent) bool                { return true }
func (passage) Begin(*fsm.State, fsm.Millis) Term { return passage{} }

func (passage) Step(in Input) Output {
	var out Output
	for _, s := range in.Settled {
		if s.Err == nil { // else the term ends, and that answers
			out.Answers = append(out.Answers, Answer{Intent: s.Item.Intent, Result: s.Result})
		}
	}
	for _, intent := range in.Intents {
		out.Propose = append(out.Propose, Item{Txn: intent.Txn, Report: intent.Report, Intent: intent})
	}
	return out
}
