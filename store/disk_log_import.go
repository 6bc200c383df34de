package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
)

// segmentDir holds the log, in a directory of segmentFormat.
const segmentDir = "log"

// importer takes over a log that bbolt has written, raft.db, which verifyLog has proven. It goes one way. Builds that know
// raft.db only must neither vote from a stale one nor begin anew without it, so the identity's format, which they
// refuse, is raised before the new log gets its name. After a crash: where there is a log, it is whole and raft.db is a
// leftover; where there is none, raft.db is the log.
type importer struct {
	dir     string
	sectors int
	// step is called before each thing done to the directory, and may fail in its place: for tests.
	step func(what string) error
}

// run may be called again after it failed, or after a crash.
func (i *importer) run(id Identity) error {
	log, old := filepath.Join(i.dir, segmentDir), filepath.Join(i.dir, logFile)
	if _, err := os.Stat(log); errors.Is(err, fs.ErrNotExist) {
		if err := i.convert(old, log, id); err != nil {
			return fmt.Errorf("take over %s: %w", old, err)
		}
	} else if err != nil {
		return err
	} else if err := syncDir(i.dir); err != nil { // a crash may have come before that of its name
		return err
	}
	if err := i.step("remove raft.db"); err != nil {
		return err
	}
	if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(i.dir)
}

func (i *importer) convert(old, log string, id Identity) error {
	tmp := log + tmpSuffix
	if err := i.step("remove leftovers"); err != nil {
		return err
	}
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := i.copy(old, tmp); err != nil {
		return err
	}
	if err := i.compare(old, tmp); err != nil {
		return err
	}
	if err := i.step("raise the format"); err != nil {
		return err
	}
	id.Format = segmentFormat
	if err := writeIdentity(i.dir, id); err != nil {
		return err
	}
	if err := i.step("name the log"); err != nil {
		return err
	}
	if err := os.Rename(tmp, log); err != nil {
		return err
	}
	return syncDir(i.dir)
}

// copy all of it, with few syncs.
func (i *importer) copy(old, tmp string) (err error) {
	d, err := readDiskLog(tmp, i.sectors)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	d.step = i.step
	if err := d.start(); err != nil {
		return err
	}
	var batch []*raft.Log
	size := 0
	flush := func() error {
		err := d.StoreLogs(batch)
		batch, size = nil, 0
		return err
	}
	err = readOld(old, d.Set, func(l *raft.Log) error {
		batch = append(batch, l)
		if size += entrySize(l); size < maxAppend/2 {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// compare reads both once more.
func (i *importer) compare(old, tmp string) (err error) {
	d, err := readDiskLog(tmp, i.sectors)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	last, values := uint64(0), 0
	err = readOld(old, func(key, value []byte) error {
		values++
		if got, err := d.Get(key); err != nil || !bytes.Equal(got, value) {
			return fmt.Errorf("%s was %x and is %x: %w", key, value, got, err)
		}
		return nil
	}, func(want *raft.Log) error {
		var got raft.Log
		last = want.Index
		if want.Index < d.ledger.first { // before a gap, which only a snapshot covers
			return nil
		}
		if err := d.GetLog(want.Index, &got); err != nil {
			return err
		}
		if got.Term != want.Term || got.Type != want.Type || !bytes.Equal(got.Data, want.Data) || !got.AppendedAt.Equal(want.AppendedAt) {
			return fmt.Errorf("entry %d was not copied", want.Index)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if now, _ := d.LastIndex(); now != last || len(d.ledger.values) != values {
		return fmt.Errorf("the last entry was %d and is %d, values were %d and are %d", last, now, values, len(d.ledger.values))
	}
	return nil
}

// readOld visits term and vote, without their checksums, and the entries.
func readOld(path string, value func(key, value []byte) error, entry func(*raft.Log) error) error {
	_, err := walkPages(path, func(bucket, key, sealed []byte) error {
		switch {
		case bytes.Equal(bucket, logBucket):
			l := &raft.Log{}
			if err := decodeLog(indexOf(key), sealed, l); err != nil {
				return err
			}
			return entry(l)
		case bytes.Equal(key, keyTail):
			return nil
		case bytes.Equal(key, keyVote):
			vote, err := openValue(key, sealed)
			if err != nil {
				return err
			}
			return value(key, vote)
		}
		n, err := openUint64(key, sealed)
		if err != nil {
			return err
		}
		return value(key, indexKey(n))
	})
	if errors.Is(err, errNeverWritten) {
		return nil
	}
	return err
}
