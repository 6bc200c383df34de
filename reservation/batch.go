package reservation

import (
	"strings"
	"time"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
)

// batch is what one Step proposes and answers, within the limits of an entry.
type batch struct {
	items   []cluster.Item
	answers []cluster.Answer
	bytes   int
	endings int
	removed int // events
	keys    map[string]struct{}
	// left: something that could be done now has to wait for the next Step.
	left bool
}

func newBatch() batch { return batch{keys: map[string]struct{}{}} }

// busy says whether this Step changes the row already: one command for each row and Step, so
// that every command is made from the row as it is.
func (b *batch) busy(key string) bool {
	_, ok := b.keys[key]
	return ok
}

// full says whether a command of this size has to wait for the next Step.
func (b *batch) full(bytes int) bool {
	items := len(b.items) - b.removed
	return items >= maxItems || items > 0 && b.bytes+bytes > maxEntryBytes
}

func (b *batch) endingsFull() bool {
	return b.endings >= maxEndings || b.full(itemOverheadBytes)
}

func (b *batch) add(item cluster.Item) {
	b.items = append(b.items, item)
	b.bytes += itemBytes(item.Txn)
}

func (b *batch) answer(in *cluster.Intent, result fsm.Result) {
	b.answers = append(b.answers, cluster.Answer{Intent: in, Result: result})
}

func itemBytes(txn *fsm.Txn) int {
	n := itemOverheadBytes
	for i := range txn.Writes {
		n += len(txn.Writes[i].Key) + len(txn.Writes[i].Body)
	}
	return n
}

func isReservation(key string) bool { return strings.HasPrefix(key, broker.ReservationsPrefix) }

func timeOf(at fsm.Millis) time.Time { return time.UnixMilli(int64(at)).UTC() }
