package fsm

import "google.golang.org/protobuf/encoding/protowire"

// A row is encoded without its account's holds: those are hashed and written one by one, so
// that a grant on an account with many holds costs the same as on one with few.

func appendRow(b []byte, r *Row) []byte {
	b = putText(b, 1, r.Key)
	b = putUint(b, 2, uint64(r.Created))
	b = putBytes(b, 3, r.Body)
	b = putUint(b, 4, uint64(r.BodyRev))
	b = putUint(b, 5, uint64(r.SpecRev))
	b = putBytes(b, 6, r.Facts)
	b = putUint(b, 7, uint64(r.FactsRev))
	if r.Ledger != nil {
		b = putMessage(b, 8, r.Ledger, appendLedger)
	}
	if r.Account != nil {
		b = putMessage(b, 9, r.Account, appendAccount)
	}
	return putUint(b, 10, uint64(r.LedgerRev))
}

func parseRow(b []byte) (*Row, error) {
	r := &Row{}
	d := decoder{rest: b}
	for d.next(0) {
		switch d.num {
		case 1:
			r.Key = d.text(MaxKeyBytes)
		case 2:
			r.Created = Revision(d.uint())
		case 3:
			r.Body = d.bytes(MaxTxnBytes)
		case 4:
			r.BodyRev = Revision(d.uint())
		case 5:
			r.SpecRev = Revision(d.uint())
		case 6:
			r.Facts = d.bytes(MaxTxnBytes)
		case 7:
			r.FactsRev = Revision(d.uint())
		case 8:
			r.Ledger = one(&d, parseLedger)
		case 9:
			r.Account = one(&d, parseAccount)
		case 10:
			r.LedgerRev = Revision(d.uint())
		default:
			d.unknown()
		}
	}
	return r, d.err
}

// appendLedger writes the columns of a stored row, Apply's own included.
func appendLedger(b []byte, l *Ledger) []byte {
	b = appendLedgerColumns(b, l)
	b = putUint(b, 16, uint64(l.Fence))
	return putList(b, 17, l.Holds, appendHeld)
}

// appendLedgerColumns writes what a proposal may say: all but Fence and Holds.
func appendLedgerColumns(b []byte, l *Ledger) []byte {
	b = putUint(b, 1, uint64(l.Phase))
	b = putBool(b, 2, l.Ended)
	b = putBool(b, 3, l.Closed)
	b = putText(b, 4, l.Target)
	b = putText(b, 5, l.Endpoint)
	b = putInt(b, 6, int64(l.GrantedAt))
	b = putInt(b, 7, int64(l.ExpiresAt))
	b = putInt(b, 8, int64(l.EndedAt))
	b = putInt(b, 9, int64(l.SeenAt))
	b = putInt(b, 10, int64(l.WaitUntil))
	b = putInt(b, 11, l.PriceNano)
	b = putText(b, 12, l.Reason)
	b = putText(b, 13, l.Message)
	if len(l.Decision) > 0 {
		b = putBytes(b, 14, l.Decision)
	}
	return putList(b, 15, l.Conditions, appendCondition)
}

func parseLedger(b []byte) (Ledger, error)         { return parseLedgerUpTo(b, 17) }
func parseProposedLedger(b []byte) (Ledger, error) { return parseLedgerUpTo(b, 15) }

func parseLedgerUpTo(b []byte, newest protowire.Number) (l Ledger, err error) {
	d := decoder{rest: b}
	for d.next(repeated(15, 17)) {
		if d.num > newest {
			d.unknown()
			break
		}
		switch d.num {
		case 1:
			l.Phase = uint8(d.upTo(255))
		case 2:
			l.Ended = d.bool()
		case 3:
			l.Closed = d.bool()
		case 4:
			l.Target = d.text(MaxTextBytes)
		case 5:
			l.Endpoint = d.text(MaxTextBytes)
		case 6:
			l.GrantedAt = d.millis()
		case 7:
			l.ExpiresAt = d.millis()
		case 8:
			l.EndedAt = d.millis()
		case 9:
			l.SeenAt = d.millis()
		case 10:
			l.WaitUntil = d.millis()
		case 11:
			l.PriceNano = d.int()
		case 12:
			l.Reason = d.text(MaxTextBytes)
		case 13:
			l.Message = d.text(MaxTextBytes)
		case 14:
			if l.Decision = d.bytes(MaxDecisionBytes); d.err == nil && len(l.Decision) == 0 {
				d.fail(ErrCorrupt, "field 14 is empty")
			}
		case 15:
			l.Conditions = more(&d, l.Conditions, MaxConditions, parseCondition)
		case 16:
			l.Fence = Revision(d.uint())
		case 17:
			l.Holds = more(&d, l.Holds, MaxHoldsPerRow, parseHeld)
		}
	}
	return l, d.err
}

func appendCondition(b []byte, c *Condition) []byte {
	b = putText(b, 1, c.Type)
	b = putText(b, 2, c.Reason)
	b = putText(b, 3, c.Message)
	b = putBool(b, 4, c.Status)
	b = putInt(b, 5, int64(c.Since))
	return putInt(b, 6, c.Observed)
}

func parseCondition(b []byte) (c Condition, err error) {
	d := decoder{rest: b}
	for d.next(0) {
		switch d.num {
		case 1:
			c.Type = d.text(MaxTextBytes)
		case 2:
			c.Reason = d.text(MaxTextBytes)
		case 3:
			c.Message = d.text(MaxTextBytes)
		case 4:
			c.Status = d.bool()
		case 5:
			c.Since = d.millis()
		case 6:
			c.Observed = d.int()
		default:
			d.unknown()
		}
	}
	return c, d.err
}

func appendHeld(b []byte, h *Held) []byte {
	b = putText(b, 1, h.Account)
	b = putList(b, 2, h.Amounts, appendAmount)
	return putUint(b, 3, uint64(h.Fence))
}

func parseHeld(b []byte) (h Held, err error) {
	d := decoder{rest: b}
	for d.next(repeated(2)) {
		switch d.num {
		case 1:
			h.Account = d.text(MaxKeyBytes)
		case 2:
			h.Amounts = more(&d, h.Amounts, MaxResources, parseAmount)
		case 3:
			h.Fence = Revision(d.uint())
		default:
			d.unknown()
		}
	}
	return h, d.err
}

func appendAccount(b []byte, a *Account) []byte {
	b = putList(b, 1, a.Allocatable, appendAmount)
	b = putList(b, 2, a.KeepBack, appendAmount)
	b = putList(b, 3, a.Allocated, appendAmount)
	b = putList(b, 4, a.Used, appendAmount)
	b = putList(b, 5, a.HeldOrUsed, appendAmount)
	b = putList(b, 6, a.LargestFree, appendAmount)
	b = putBool(b, 7, a.Closed)
	b = putSession(b, 8, a.Session)
	b = putUint(b, 9, a.Epoch)
	b = putUint(b, 10, a.Sequence)
	return putList(b, 11, a.Held, appendAmount)
}

func parseAccount(b []byte) (a Account, err error) {
	// Sums name every resource of any hold.
	const maxSum = MaxResources * MaxHoldsPerAccount
	d := decoder{rest: b}
	for d.next(repeated(1, 2, 3, 4, 5, 6, 11)) {
		switch d.num {
		case 1:
			a.Allocatable = more(&d, a.Allocatable, MaxResources, parseAmount)
		case 2:
			a.KeepBack = more(&d, a.KeepBack, MaxResources, parseAmount)
		case 3:
			a.Allocated = more(&d, a.Allocated, MaxResources, parseAmount)
		case 4:
			a.Used = more(&d, a.Used, maxSum, parseAmount)
		case 5:
			a.HeldOrUsed = more(&d, a.HeldOrUsed, maxSum, parseAmount)
		case 6:
			a.LargestFree = more(&d, a.LargestFree, MaxResources, parseAmount)
		case 7:
			a.Closed = d.bool()
		case 8:
			a.Session = d.session()
		case 9:
			a.Epoch = d.uint()
		case 10:
			a.Sequence = d.uint()
		case 11:
			a.Held = more(&d, a.Held, maxSum, parseAmount)
		default:
			d.unknown()
		}
	}
	return a, d.err
}

func appendHold(b []byte, h *Hold) []byte {
	b = putText(b, 1, h.Holder)
	b = putList(b, 2, h.Amounts, appendAmount)
	b = putList(b, 3, h.Used, appendAmount)
	b = putUint(b, 4, uint64(h.Fence))
	return putInt(b, 5, int64(h.Priority))
}

func parseHold(b []byte) (h Hold, err error) {
	d := decoder{rest: b}
	for d.next(repeated(2, 3)) {
		switch d.num {
		case 1:
			h.Holder = d.text(MaxKeyBytes)
		case 2:
			h.Amounts = more(&d, h.Amounts, MaxResources, parseAmount)
		case 3:
			h.Used = more(&d, h.Used, MaxResources, parseAmount)
		case 4:
			h.Fence = Revision(d.uint())
		case 5:
			h.Priority = d.int32()
		default:
			d.unknown()
		}
	}
	return h, d.err
}

func putSession(b []byte, num protowire.Number, s [16]byte) []byte {
	if s == ([16]byte{}) {
		return b
	}
	return putBytes(b, num, s[:])
}

func (d *decoder) session() (s [16]byte) {
	raw := d.message()
	if d.err == nil && (len(raw) != len(s) || [16]byte(raw) == s) {
		d.fail(ErrCorrupt, "field %d is no session", d.num)
		return s
	}
	copy(s[:], raw)
	return s
}
