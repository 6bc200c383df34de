package fsm

import (
	"fmt"

	"github.com/bourse-dev/bourse/allocation"
)

// EncodeTxn encodes one Txn for the internal RPC. It fails where the Txn exceeds a limit.
func EncodeTxn(t *Txn) ([]byte, error) {
	b := appendTxn(nil, t)
	if _, err := DecodeTxn(b); err != nil {
		return nil, fmt.Errorf("encode txn: %w", err)
	}
	return b, nil
}

// DecodeTxn decodes what EncodeTxn wrote. It is safe on hostile bytes and keeps none of b.
func DecodeTxn(b []byte) (Txn, error) {
	if len(b) > MaxTxnBytes {
		return Txn{}, fmt.Errorf("%w: txn has %d bytes, the limit is %d", ErrTooLarge, len(b), MaxTxnBytes)
	}
	return parseTxn(b)
}

func appendTxn(b []byte, t *Txn) []byte {
	b = putID(b, t.ID)
	b = putList(b, 3, t.Guards, appendGuard)
	b = putList(b, 4, t.Writes, appendWrite)
	return putList(b, 5, t.Moves, appendMove)
}

func parseTxn(b []byte) (t Txn, err error) {
	d := decoder{rest: b}
	for d.next(repeated(3, 4, 5)) {
		switch d.num {
		case 1:
			t.ID.Seen = Revision(d.uint())
		case 2:
			t.ID.Random = d.uint()
		case 3:
			t.Guards = more(&d, t.Guards, MaxGuards, parseGuard)
		case 4:
			t.Writes = more(&d, t.Writes, MaxWrites, parseWrite)
		case 5:
			t.Moves = more(&d, t.Moves, MaxMoves, parseMove)
		default:
			d.unknown()
		}
	}
	return t, d.err
}

func putID(b []byte, id RequestID) []byte {
	b = putUint(b, 1, uint64(id.Seen))
	return putUint(b, 2, id.Random)
}

func appendGuard(b []byte, g *Guard) []byte {
	b = putText(b, 1, g.Key)
	b = putUint(b, 2, uint64(g.Part))
	b = putUint(b, 3, uint64(g.Revision))
	return putInt(b, 4, int64(g.ExpiresAt))
}

func parseGuard(b []byte) (g Guard, err error) {
	d := decoder{rest: b}
	for d.next(0) {
		switch d.num {
		case 1:
			g.Key = d.text(MaxKeyBytes)
		case 2:
			g.Part = Part(d.upTo(uint64(PartLease)))
		case 3:
			g.Revision = Revision(d.uint())
		case 4:
			g.ExpiresAt = d.millis()
		default:
			d.unknown()
		}
	}
	return g, d.err
}

func appendWrite(b []byte, w *Write) []byte {
	b = putText(b, 1, w.Key)
	b = putBool(b, 2, w.Delete)
	b = putBool(b, 3, w.IfAbsent)
	b = putBytes(b, 4, w.Body)
	b = putBool(b, 5, w.SpecChanged)
	b = putBytes(b, 6, w.Facts)
	if w.Ledger != nil {
		b = putMessage(b, 7, w.Ledger, appendLedgerColumns)
	}
	if w.Terms != nil {
		b = putMessage(b, 8, w.Terms, appendTerms)
	}
	return b
}

func parseWrite(b []byte) (w Write, err error) {
	d := decoder{rest: b}
	for d.next(0) {
		switch d.num {
		case 1:
			w.Key = d.text(MaxKeyBytes)
		case 2:
			w.Delete = d.bool()
		case 3:
			w.IfAbsent = d.bool()
		case 4:
			w.Body = d.bytes(MaxTxnBytes)
		case 5:
			w.SpecChanged = d.bool()
		case 6:
			w.Facts = d.bytes(MaxTxnBytes)
		case 7:
			w.Ledger = one(&d, parseProposedLedger)
		case 8:
			w.Terms = one(&d, parseTerms)
		default:
			d.unknown()
		}
	}
	return w, d.err
}

func appendTerms(b []byte, t *Terms) []byte {
	b = putList(b, 1, t.KeepBack, appendAmount)
	return putBool(b, 2, t.Closed)
}

func parseTerms(b []byte) (t Terms, err error) {
	d := decoder{rest: b}
	for d.next(repeated(1)) {
		switch d.num {
		case 1:
			t.KeepBack = more(&d, t.KeepBack, MaxResources, parseAmount)
		case 2:
			t.Closed = d.bool()
		default:
			d.unknown()
		}
	}
	return t, d.err
}

func appendMove(b []byte, m *Move) []byte {
	b = putUint(b, 1, uint64(m.Op))
	b = putText(b, 2, m.Account)
	b = putText(b, 3, m.Holder)
	b = putText(b, 4, m.To)
	b = putList(b, 5, m.Amounts, appendAmount)
	return putInt(b, 6, int64(m.Priority))
}

func parseMove(b []byte) (m Move, err error) {
	d := decoder{rest: b}
	for d.next(repeated(5)) {
		switch d.num {
		case 1:
			m.Op = MoveOp(d.upTo(uint64(MoveResize)))
		case 2:
			m.Account = d.text(MaxKeyBytes)
		case 3:
			m.Holder = d.text(MaxKeyBytes)
		case 4:
			m.To = d.text(MaxKeyBytes)
		case 5:
			m.Amounts = more(&d, m.Amounts, MaxResources, parseAmount)
		case 6:
			m.Priority = d.int32()
		default:
			d.unknown()
		}
	}
	return m, d.err
}

func appendAmount(b []byte, a *allocation.Amount) []byte {
	b = putText(b, 1, a.Resource)
	return putInt(b, 2, a.Value)
}

// parseAmount takes any value: whether a vector is valid is a question for Apply, which
// refuses one command and not the whole entry.
func parseAmount(b []byte) (a allocation.Amount, err error) {
	d := decoder{rest: b}
	for d.next(0) {
		switch d.num {
		case 1:
			a.Resource = d.text(MaxResourceBytes)
		case 2:
			a.Value = d.int()
		default:
			d.unknown()
		}
	}
	return a, d.err
}
