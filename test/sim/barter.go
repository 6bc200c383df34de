package main

import (
	"fmt"
	"strings"

	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
)

// barter is a leader room of the simulator's own: it does what no room of the house does yet, hands
// holds from row to row, resizes them and takes several of one account. Its account is stocked by itself.
type barter struct{}

const (
	stock       = "stocks/grain"
	barterRows  = "barters/"
	barterSpeak = 3 // bytes of a body that say what is wanted
)

// notYet answers what some node's build would not know.
var notYet = fsm.Result{Refusal: &fsm.Refusal{Kind: fsm.RefusedInvalid, Key: "moves.op"}}

var stockSession = [16]byte{'b', 'a', 'r', 't', 'e', 'r'}

func (barter) Name() string { return "barter" }

func (barter) Takes(in *cluster.Intent) bool {
	return in.Txn != nil && len(in.Txn.Writes) > 0 && strings.HasPrefix(in.Txn.Writes[0].Key, barterRows)
}

func (barter) Begin(*fsm.State, fsm.Millis) cluster.Term { return barter{} }

func (b barter) Step(in cluster.Input) cluster.Output {
	var out cluster.Output
	for _, s := range in.Settled {
		if s.Err == nil && s.Item.Intent != nil {
			out.Answers = append(out.Answers, cluster.Answer{Intent: s.Item.Intent, Result: s.Result})
		}
	}
	if item, wanted := b.restock(in.State); wanted {
		out.Propose = append(out.Propose, item)
	}
	for _, intent := range in.Intents {
		txn := *intent.Txn
		w := txn.Writes[0]
		move := fsm.Move{Account: stock, Holder: w.Key}
		switch string(w.Body[:barterSpeak]) {
		case "get":
			move.Op, move.Amounts = fsm.MoveHold, amounts("grain=3", true)
		case "end":
			move.Op = fsm.MoveRelease
		case "siz":
			if in.State.Behaviour() < fsm.ResizeBehaviour {
				out.Answers = append(out.Answers, cluster.Answer{Intent: intent, Result: notYet})
				continue
			}
			move.Op, move.Amounts = fsm.MoveResize, amounts(fmt.Sprintf("grain=%d", 1+w.Body[barterSpeak]%6), true)
		default: // "x->": hand it to the row named after that
			move.Op, move.To = fsm.MoveTransfer, barterRows+string(w.Body[barterSpeak])
			txn.Writes = append([]fsm.Write{{Key: move.To, Body: w.Body, Ledger: &fsm.Ledger{Phase: 1}}}, txn.Writes...)
		}
		txn.Moves = []fsm.Move{move}
		out.Propose = append(out.Propose, cluster.Item{Txn: &txn, Intent: intent})
	}
	return out
}

// restock makes the account: the row, its session, its figures.
func (barter) restock(state *fsm.State) (cluster.Item, bool) {
	row := state.Row(stock)
	switch {
	case row == nil:
		return cluster.Item{Txn: &fsm.Txn{
			Guards: []fsm.Guard{fsm.GuardAbsent(stock)},
			Writes: []fsm.Write{{Key: stock, Body: []byte("{}"), Terms: &fsm.Terms{}}},
		}}, true
	case row.Account.Epoch == 0:
		return cluster.Item{Report: &fsm.Report{Account: stock, Session: stockSession, Open: true}}, true
	case len(row.Account.Allocatable) == 0:
		return cluster.Item{Report: &fsm.Report{
			Account: stock, Session: stockSession, Epoch: row.Account.Epoch, Sequence: 1,
			Facts: fsm.AccountFacts{Allocatable: amounts("grain=7", false)},
		}}, true
	}
	return cluster.Item{}, false
}

// barter wants something of the stock, sensible or not.
func (c *client) barter(n *node) {
	to := oneOf(c, names[:4])
	key := barterRows + oneOf(c, names[:4])
	what := oneOf(c, []string{"get", "get", "end", "x->", "siz"})
	c.trace.number++
	c.submit(n, "barter", fsm.Txn{Writes: []fsm.Write{{Key: key, Body: []byte(what + to)}}})
}
