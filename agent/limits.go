package agent

import "time"

const (
	// DefaultHeartbeatEvery is a third of the exchange's default stale limit (90 s): two lost
	// heartbeats cost nothing.
	DefaultHeartbeatEvery = 30 * time.Second
	// DefaultPublishWithin gathers a burst of pod events (a rollout) into one report.
	DefaultPublishWithin = 200 * time.Millisecond
	// MaxPublishWithin is what a change may wait here: it must be with the exchange within 1 s, and
	// the rest is the request's.
	MaxPublishWithin = 900 * time.Millisecond
	// MinHeartbeatEvery bounds HeartbeatEvery from below: more often, 50 agents would be a load.
	MinHeartbeatEvery = time.Second
	// MaxHeartbeatEvery bounds it from above: more seldom, the exchange would call a healthy agent Stale.
	MaxHeartbeatEvery = 80 * time.Second

	// requestTimeout bounds one request to the exchange. An election takes about a second; the
	// answer of a node that waits for one still comes in time.
	requestTimeout = 5 * time.Second
	// backoffBase and backoffCap: waits of 0.25..0.5 s, doubling to 5..10 s. After an outage the
	// last agent is back within 10 s, and 50 agents make at most 10 requests a second meanwhile.
	backoffBase = 500 * time.Millisecond
	backoffCap  = 10 * time.Second

	// blindAfter is how long the agent goes on speaking for a member cluster whose API server it
	// can't reach. Then it falls silent and the exchange calls the offer Stale: figures that
	// nobody can check are not to be sold.
	blindAfter = 90 * time.Second

	// maxEndedFences remembers fences of deleted reservations, so that a late event can't bring
	// one back. About 150 bytes each: 600 KiB.
	maxEndedFences = 4096

	// stopWithin bounds the end of the HTTP listener's open requests.
	stopWithin = 3 * time.Second
	// readHeaderWithin bounds a slow client of the metrics listener.
	readHeaderWithin = 5 * time.Second
)
