package advertisement

import (
	"encoding/json"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
)

// agent is what the leader remembers of who speaks for one cluster.
type agent struct {
	heardAt    fsm.Millis // 0: not in this term
	grace      bool       // heardAt is the start of the term, not a report
	epoch      uint64     // the newest sequence heard, and its epoch
	sequence   uint64
	strangerAt fsm.Millis // when a superseded session was last heard; 0: never

	pending    []*cluster.Intent // reports that change something, the newest last
	proposedAt fsm.Millis        // when a report was last proposed; 0: never
	lookAt     fsm.Millis        // the earliest deadline that is set for it; 0: none

	bodyRev   fsm.Revision // of which withdrawn was read
	withdrawn bool
}

// hear notes a report of the session that speaks for the cluster.
func (a *agent) hear(now fsm.Millis, epoch, sequence uint64) {
	a.heardAt, a.grace = now, false
	a.note(epoch, sequence)
}

// note keeps the newest sequence of the newest epoch.
func (a *agent) note(epoch, sequence uint64) {
	switch {
	case epoch > a.epoch:
		a.epoch, a.sequence = epoch, sequence
	case epoch == a.epoch:
		a.sequence = max(a.sequence, sequence)
	}
}

// isWithdrawn reads the provider's word from the body, once for each.
func (a *agent) isWithdrawn(row *fsm.Row) bool {
	if a.bodyRev != row.BodyRev {
		var body struct {
			Spec struct {
				Lending struct {
					Withdrawn bool `json:"withdrawn"`
				} `json:"lending"`
			} `json:"spec"`
		}
		// A body that can't be read offers nothing.
		a.withdrawn = json.Unmarshal(row.Body, &body) != nil || body.Spec.Lending.Withdrawn
		a.bodyRev = row.BodyRev
	}
	return a.withdrawn
}

// standing is what the state says to a report, before anything is proposed.
type standing uint8

const (
	standingNews      standing = iota // it changes something, or opens a session
	standingUnchanged                 // a heartbeat
	standingRefused                   // see the refusal
)

// judge compares a report with the account. It asks the same questions in the same order as
// Apply, so that what can only be refused costs no entry.
func (a *agent) judge(row *fsm.Row, report *fsm.Report) (standing, fsm.RefusalKind) {
	account := row.Account
	switch {
	case account == nil:
		return standingRefused, fsm.RefusedMissing
	case report.Open:
		if account.Epoch > 0 && account.Session == report.Session {
			return standingUnchanged, 0 // asked again: it has its epoch already
		}
		return standingNews, 0
	case report.Epoch > account.Epoch:
		return standingRefused, fsm.RefusedSession
	case report.Epoch < account.Epoch:
		return standingRefused, fsm.RefusedEpoch
	case report.Session != account.Session:
		return standingRefused, fsm.RefusedSession
	case report.Sequence <= account.Sequence, report.Epoch == a.epoch && report.Sequence <= a.sequence:
		return standingRefused, fsm.RefusedLate
	case sameFacts(account, report):
		return standingUnchanged, 0
	}
	return standingNews, 0
}

// sameFacts says whether recording the report would change nothing.
func sameFacts(account *fsm.Account, report *fsm.Report) bool {
	f := &report.Facts
	if !f.Allocatable.Equal(account.Allocatable) || !f.Allocated.Equal(account.Allocated) || !f.LargestFree.Equal(account.LargestFree) {
		return false
	}
	used := make(map[string]allocation.Amounts, len(report.Use))
	for i := range report.Use {
		u := &report.Use[i]
		if hold, ok := account.Hold(u.Holder); ok && hold.Fence == u.Fence {
			used[u.Holder] = u.Used
		}
	}
	for hold := range account.Holds() {
		if !hold.Used.Equal(used[hold.Holder]) {
			return false
		}
	}
	return true
}

// fault names what of a report can't be right, "" where nothing is.
func fault(report *fsm.Report) string {
	f := &report.Facts
	switch {
	case report.Session == [16]byte{}:
		return "session"
	case !validFacts(f.Allocatable):
		return "allocatable"
	case !validFacts(f.Allocated):
		return "allocated"
	case !validFacts(f.LargestFree):
		return "largestFree"
	case len(report.Use) > broker.MaxHoldUse:
		return "use"
	}
	seen := make(map[string]struct{}, len(report.Use))
	for i := range report.Use {
		u := &report.Use[i]
		if _, twice := seen[u.Holder]; twice || u.Holder == "" || !validFacts(u.Used) {
			return "use"
		}
		seen[u.Holder] = struct{}{}
	}
	return ""
}

func validFacts(a allocation.Amounts) bool { return len(a) <= broker.MaxResources && a.Valid() }

func reportBytes(report *fsm.Report) int { return reportOverheadBytes + useBytes*len(report.Use) }
