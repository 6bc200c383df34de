package blueprint

import (
	"strings"
	"time"

	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
)

// batch is what one Step proposes, within the limits of an entry.
type batch struct {
	items []cluster.Item
	bytes int
}

// add takes a command, or says that it has to wait for the next Step.
func (b *batch) add(txn *fsm.Txn) bool {
	size := itemOverheadBytes
	for i := range txn.Writes {
		w := &txn.Writes[i]
		if size += len(w.Key) + len(w.Body) + len(w.Facts); w.Ledger != nil {
			size += len(w.Ledger.Decision)
		}
	}
	if len(b.items) >= maxItems || len(b.items) > 0 && b.bytes+size > maxEntryBytes {
		return false
	}
	b.items, b.bytes = append(b.items, cluster.Item{Txn: txn}), b.bytes+size
	return true
}

func timeOf(at fsm.Millis) time.Time { return time.UnixMilli(int64(at)).UTC() }

func namespaceAndName(key, prefix string) (namespace, name string) {
	namespace, name, _ = strings.Cut(strings.TrimPrefix(key, prefix), "/")
	return namespace, name
}
