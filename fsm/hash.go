package fsm

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
)

// Hash identifies a state: equal on all replicas at the same revision.
type Hash [sha256.Size]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// sum adds up hashes of single rows, holds and results modulo 2^256, so that a change costs
// one subtraction and one addition wherever it lies. It finds replicas that differ by fault;
// against an adversary who chooses rows an additive hash promises little.
type sum [4]uint64

func (s sum) add(o sum) (r sum) {
	var carry uint64
	for i := range s {
		r[i], carry = bits.Add64(s[i], o[i], carry)
	}
	return r
}

func (s sum) sub(o sum) (r sum) {
	var borrow uint64
	for i := range s {
		r[i], borrow = bits.Sub64(s[i], o[i], borrow)
	}
	return r
}

// What is hashed, so that a row never counts as a hold. Numbers are in snapshots.
const (
	hashesRow    = 1
	hashesHold   = 2
	hashesResult = 3
)

// hasher turns items into sums. Its buffer is reused: one goroutine at a time.
type hasher struct{ buf []byte }

func (h *hasher) row(r *Row) sum {
	h.buf = appendRow(append(h.buf[:0], hashesRow), r)
	return h.sum()
}

func (h *hasher) hold(account string, hold *Hold) sum {
	h.buf = putText(append(h.buf[:0], hashesHold), 1, account)
	h.buf = appendHold(h.buf, hold)
	return h.sum()
}

func (h *hasher) result(r *remembered) sum {
	h.buf = appendRemembered(append(h.buf[:0], hashesResult), r)
	return h.sum()
}

func (h *hasher) sum() (s sum) {
	digest := sha256.Sum256(h.buf)
	for i := range s {
		s[i] = binary.LittleEndian.Uint64(digest[8*i:])
	}
	return s
}
