package reservation

import (
	"strings"
	"time"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
)

// plan is what one Step proposes and answers, within the limits of an entry.
type plan struct {
	items              []cluster.Item
	answers            []cluster.Answer
	bytes              int // of all but the large one
	decisions, endings int
	removed            int  // events
	large              bool // it has a command that is larger than half an entry
	keys               map[string]struct{}
	// left: something that could be done now has to wait for the next Step.
	left bool
}

func newPlan() plan { return plan{keys: map[string]struct{}{}} }

// busy says whether this Step changes the row already: one command for each row and Step, so
// that every command is made from the row as it is.
func (p *plan) busy(key string) bool {
	_, ok := p.keys[key]
	return ok
}

// fits says whether a command that adds so many bytes to its overhead has room in this Step. One that
// is larger than half an entry has it once, beside all the others: it would wait for ever for a Step that
// nothing comes before in.
func (p *plan) fits(bytes int) bool {
	bytes += itemOverheadBytes
	switch items := len(p.items) - p.removed; {
	case items == 0:
		return true
	case items >= maxItems:
		return false
	case isLarge(bytes) && !p.large:
		return true
	}
	return p.bytes+bytes <= maxEntryBytes
}

func isLarge(bytes int) bool { return bytes > maxEntryBytes/2 }

func (p *plan) endingsFull() bool { return p.endings >= maxEndings || !p.fits(0) }

func (p *plan) add(item cluster.Item) {
	bytes := itemBytes(item.Txn)
	p.items = append(p.items, item)
	if isLarge(bytes) && !p.large {
		p.large = true
		return
	}
	p.bytes += bytes
}

func (p *plan) answer(in *cluster.Intent, result fsm.Result) {
	p.answers = append(p.answers, cluster.Answer{Intent: in, Result: result})
}

// itemBytes estimates a command: its own overhead has room for one ledger.
func itemBytes(txn *fsm.Txn) int {
	n, ledgers := itemOverheadBytes, 0
	for i := range txn.Writes {
		w := &txn.Writes[i]
		n += len(w.Key) + len(w.Body) + len(w.Facts)
		if w.Ledger == nil {
			continue
		}
		if ledgers++; ledgers > 1 {
			n += partOverheadBytes + len(w.Ledger.Decision) + len(w.Ledger.Message)
		}
	}
	return n
}

// writeBytes is what one more part adds to that.
func writeBytes(w *fsm.Write) int {
	return partOverheadBytes + len(w.Key) + len(w.Body) + len(w.Ledger.Decision) + len(w.Ledger.Message)
}

func isReservation(key string) bool { return strings.HasPrefix(key, broker.ReservationsPrefix) }

func timeOf(at fsm.Millis) time.Time { return time.UnixMilli(int64(at)).UTC() }
