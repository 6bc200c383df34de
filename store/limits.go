package store

import "time"

// The change history: how far back a watch can resume and a list can be continued.
const (
	// MaxHistoryChanges at the 200 rows/s of a busy exchange is over a minute of small rows.
	MaxHistoryChanges = 16_384
	// MaxHistoryBytes bounds what the history keeps alive by our own reckoning, see weigh: a sixth
	// of the 128 MiB a node may use. Rows of 600 bytes weigh 3.4 KiB: 6,000 changes, half a minute
	// at 200 rows/s. Whoever reconnects does so within seconds.
	MaxHistoryBytes = 20 << 20

	// changeOverhead is a change beside its row's parts: the row, its tree node, the decoded object.
	changeOverhead = 1024
	// bodyWeight: a body is kept as bytes, as the decoded object (about twice that) and encoded
	// for watchers (about once).
	bodyWeight = 4
)

// Watches.
const (
	// watchBuffer is how many events wait for a slow client before its goroutine stops reading
	// the history. Beyond it nothing is queued: the client falls behind, then out of the history.
	watchBuffer = 100
	// followBatch bounds how many changes one read takes out of the history at a time.
	followBatch = 1024
	// bookmarkInterval is what Kubernetes' own watch cache uses.
	bookmarkInterval = time.Minute
	// bookmarkBeforeEnd: the last bookmark of a watch with a deadline comes this long before it,
	// so that the client's next watch starts near the present.
	bookmarkBeforeEnd = 2 * time.Second
)

// retryAfterSeconds is told to clients where surely nothing was proposed: an election takes about one.
const retryAfterSeconds = 1
