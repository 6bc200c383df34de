package advertisement

import (
	"time"

	"github.com/bourse-dev/bourse/fsm"
)

// DefaultStaleAfter is three heartbeats of the agents' 30 s.
const DefaultStaleAfter = 90 * time.Second

const (
	// minReportInterval between two proposals for one cluster: an agent is not trusted to be
	// slow. 4 a second and cluster bound 50 mad agents to 200 rows a second, and a change still
	// shows within a quarter of the second that agents promise.
	minReportInterval = fsm.Millis(250)
	// maxPendingReports of one cluster wait for their turn; the newest is proposed and answers
	// all. An agent has one or two under way.
	maxPendingReports = 16
	// maxItems of one Step, the rest waits for the next: a report is 1 KiB as a rule.
	maxItems = 128
	// maxEntryBytes of the reports of one Step, by estimate: an entry stays under 256 KiB. A
	// single larger one (2,048 uses) goes alone.
	maxEntryBytes = 192 << 10
	// reportOverheadBytes and useBytes estimate a report: three vectors of ten resources, and
	// for each use a key, a fence and a vector.
	reportOverheadBytes = 1 << 10
	useBytes            = 160
)
