package fsm

import "fmt"

func (p Part) String() string {
	switch p {
	case PartRow:
		return "row"
	case PartBody:
		return "body"
	case PartFacts:
		return "facts"
	case PartLedger:
		return "ledger"
	case PartSpec:
		return "spec"
	case PartLease:
		return "lease"
	}
	return fmt.Sprintf("part %d", uint8(p))
}

// String is one word, as metrics count refusals.
func (k RefusalKind) String() string {
	switch k {
	case RefusedGuard:
		return "guard"
	case RefusedExists:
		return "exists"
	case RefusedMissing:
		return "missing"
	case RefusedCapacity:
		return "capacity"
	case RefusedClosed:
		return "closed"
	case RefusedHeld:
		return "held"
	case RefusedInUse:
		return "inUse"
	case RefusedEpoch:
		return "epoch"
	case RefusedSession:
		return "session"
	case RefusedLate:
		return "late"
	case RefusedUnknown:
		return "unknown"
	case RefusedInvalid:
		return "invalid"
	}
	return fmt.Sprintf("refusal %d", uint8(k))
}

// String says which rule refused what, and at which revision.
func (r *Refusal) String() string {
	var why string
	switch r.Kind {
	case RefusedGuard:
		why = fmt.Sprintf("the %s of %s is not as it was", r.Part, r.Key)
	case RefusedExists:
		why = r.Key + " exists"
	case RefusedMissing:
		why = r.Key + " is not there"
	case RefusedCapacity:
		why = fmt.Sprintf("%s: %s %d requested, %d available", r.Key, r.Lack.Resource, r.Lack.Requested, r.Lack.Available)
	case RefusedClosed:
		why = r.Key + " takes no new hold"
	case RefusedHeld:
		why = "already held on " + r.Key
	case RefusedInUse:
		why = r.Key + " has live holds"
	case RefusedEpoch:
		why = "a newer session speaks for " + r.Key
	case RefusedSession:
		why = r.Key + " does not know this session"
	case RefusedLate:
		why = r.Key + " has a newer report of this session"
	case RefusedUnknown:
		why = "too old to tell what became of it"
	case RefusedInvalid:
		why = r.Key + " is malformed"
	default:
		why = r.Kind.String()
	}
	return fmt.Sprintf("%s (revision %d)", why, r.Revision)
}
