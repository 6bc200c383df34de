package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"go.etcd.io/bbolt"
)

// boltLog is a log as it was before the log of segments: raft.db.
type boltLog struct{ path string }

// each calls f with the entries, newest first, as long as it says so.
func (l boltLog) each(f func(index uint64, value []byte) (more bool)) (err error) {
	db, err := bbolt.Open(l.path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.View(func(tx *bbolt.Tx) error {
		logs := tx.Bucket([]byte("logs")) // as raft-boltdb names it
		if logs == nil {
			return errors.New("no log")
		}
		cursor := logs.Cursor()
		for key, value := cursor.Last(); key != nil && f(binary.BigEndian.Uint64(key), value); key, value = cursor.Prev() {
		}
		return nil
	})
}

func (l boltLog) lastIndex() (last uint64, err error) {
	err = l.each(func(index uint64, _ []byte) bool { last = index; return false })
	return last, err
}

// cut takes the last pages away.
func (l boltLog) cut(rng *rand.Rand) error { return cutFile(l.path, os.Getpagesize(), rng) }

// tear appends what a crash may leave while the file grows.
func (l boltLog) tear(rng *rand.Rand) (err error) {
	file, err := os.OpenFile(l.path, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	junk := make([]byte, 1+rng.IntN(os.Getpagesize()))
	for i := range junk {
		junk[i] = byte(rng.Uint32())
	}
	_, err = file.Write(junk)
	return errors.Join(err, file.Close())
}

func (l boltLog) flipEntry(after uint64, rng *rand.Rand) error {
	var largest []byte
	err := l.each(func(index uint64, value []byte) bool {
		if index > after && len(value) > len(largest) {
			largest = bytes.Clone(value)
		}
		return index > after
	})
	if err != nil {
		return err
	}
	if len(largest) < 512 {
		return errNoEntry
	}
	data, err := os.ReadFile(l.path)
	if err != nil {
		return err
	}
	// The payload is most of so large an entry, so its middle is in it. Older pages may hold copies.
	at, found := len(largest)/2, 0
	for from := 0; ; {
		i := bytes.Index(data[from:], largest)
		if i < 0 {
			break
		}
		flip(data[from+i:], at, rng)
		from += i + len(largest)
		found++
	}
	if found == 0 {
		return fmt.Errorf("%w: the entry does not lie in one piece", errNoEffect)
	}
	return os.WriteFile(l.path, data, 0o600)
}

func (l boltLog) flipAnywhere(rng *rand.Rand) error { return flipIn(l.path, rng) }

// damageShows: a flip may lie in a page that is not in use, and the end may be free.
func (l boltLog) damageShows() bool { return false }
