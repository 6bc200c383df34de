package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// keyTail names the record of the tail, beside term and vote.
var keyTail = []byte("LogTail")

// maxStableValue bounds term, vote and their like. bbolt keeps a bucket of up to a quarter of a page inside the
// page that names it, and all of ours must lie there: four keys, with room to spare.
const maxStableValue = 512

// tail is what the log holds. A page of bbolt has no checksum: a flipped bit in the number of a page may name one
// of an older tree, whole in itself, in which the newest entries are missing. This record lies in the root page, whose
// number is covered by the checksum of the head page: it can't be of an older tree. Every transaction of ours
// writes it, in pages that it writes anyway.
type tail struct {
	tx          uint64 // the transaction that wrote it: a later one was that of an older version, which knows no tail
	first, last uint64 // 0 where the log is empty
	// sum of the checksums of all entries as they lie on disk: an older tree may have as many, of another term.
	sum uint64
	// stable is the checksum of term and vote.
	stable uint32
}

const tailSize = 4*8 + 2*checksumSize

func (t *tail) add(key, value []byte) {
	index := binary.BigEndian.Uint64(key)
	if t.last == 0 {
		t.first = index
	}
	t.first, t.last = min(t.first, index), max(t.last, index)
	t.sum += uint64(stableSum(key, value))
}

// take an entry away, if there is one. first and last are the caller's business.
func (t *tail) take(key, value []byte) {
	if value != nil {
		t.sum -= uint64(stableSum(key, value))
	}
}

func (t *tail) encode() []byte {
	b := make([]byte, 0, tailSize)
	for _, v := range []uint64{t.tx, t.first, t.last, t.sum} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	b = binary.BigEndian.AppendUint32(b, t.stable)
	return binary.BigEndian.AppendUint32(b, stableSum(keyTail, b))
}

func parseTail(b []byte) (t tail, err error) {
	if len(b) != tailSize {
		return tail{}, fmt.Errorf("%w: %s is %d bytes long", ErrCorrupt, keyTail, len(b))
	}
	body := b[:tailSize-checksumSize]
	if err := checkStable(keyTail, body, b[len(body):]); err != nil {
		return tail{}, err
	}
	for i, v := range []*uint64{&t.tx, &t.first, &t.last, &t.sum} {
		*v = binary.BigEndian.Uint64(body[8*i:])
	}
	t.stable = binary.BigEndian.Uint32(body[4*8:])
	return t, nil
}

// sumOfStable covers term and vote as they lie on disk.
func sumOfStable(get func(key []byte) []byte) (sum uint32) {
	for _, key := range [][]byte{keyTerm, keyVoteTerm, keyVote} {
		if value := get(key); value != nil {
			sum = sum*31 + stableSum(key, value)
		}
	}
	return sum
}

// update runs f in a transaction. f tells the tail what it does to the log.
func (s *raftStore) update(f func(log, stable *bbolt.Bucket, t *tail) error) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		log, stable := tx.Bucket(logBucket), tx.Bucket(stableBucket)
		t, err := parseTail(stable.Get(keyTail))
		if err != nil {
			return err
		}
		if err := f(log, stable, &t); err != nil {
			return err
		}
		return writeTail(tx, stable, t)
	})
}

func writeTail(tx *bbolt.Tx, stable *bbolt.Bucket, t tail) error {
	t.tx, t.stable = uint64(tx.ID()), sumOfStable(stable.Get)
	return stable.Put(keyTail, t.encode())
}

// prepare makes what a new file lacks, and the record where an older version wrote last.
func (s *raftStore) prepare(proven tail) error {
	ready := false
	if err := s.db.View(func(tx *bbolt.Tx) error {
		ready = proven.tx == uint64(tx.ID())
		return nil
	}); err != nil || ready {
		return err
	}
	return s.db.Update(func(tx *bbolt.Tx) error {
		if _, err := tx.CreateBucketIfNotExists(logBucket); err != nil {
			return err
		}
		stable, err := tx.CreateBucketIfNotExists(stableBucket)
		if err != nil {
			return err
		}
		return writeTail(tx, stable, proven)
	})
}

// verifyTail says whether the record, if it is of transaction now, is true of what was found. found.tx becomes that
// of a true record; it stays 0 where an older version wrote last.
func verifyTail(record []byte, now uint64, found *tail) error {
	if record == nil {
		return nil
	}
	t, err := parseTail(record)
	switch {
	case err != nil:
		return err
	case t.tx > now:
		return fmt.Errorf("%s is of transaction %d, the head page of %d", keyTail, t.tx, now)
	case t.tx < now:
		return nil
	case t.first != found.first || t.last != found.last:
		return fmt.Errorf("entries are missing: %d to %d are there, %d to %d were stored", found.first, found.last, t.first, t.last)
	case t.sum != found.sum:
		return errors.New("entries are not those that were stored")
	case t.stable != found.stable:
		return errors.New("term or vote are not those that were stored")
	}
	found.tx = t.tx
	return nil
}
