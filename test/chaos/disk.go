package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/bbolt"
)

// disk is the data directory of a node that does not run.
type disk struct{ dir string }

func (d *disk) log() string { return filepath.Join(d.dir, "raft.db") }

// entries calls f with the log's entries, newest first, as long as it says so.
func (d *disk) entries(f func(index uint64, value []byte) (more bool)) (err error) {
	db, err := bbolt.Open(d.log(), 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
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

func (d *disk) lastIndex() (last uint64, err error) {
	err = d.entries(func(index uint64, _ []byte) bool { last = index; return false })
	return last, err
}

// newestSnapshot of a directory that may be in use.
func (d *disk) newestSnapshot() (path string, index uint64, err error) {
	list, err := filepath.Glob(filepath.Join(d.dir, "snapshots", "*", "meta.json"))
	if err != nil {
		return "", 0, err
	}
	for _, name := range list {
		if strings.HasSuffix(filepath.Dir(name), ".tmp") {
			continue
		}
		var meta struct{ Index uint64 }
		data, err := os.ReadFile(name)
		if err != nil || json.Unmarshal(data, &meta) != nil {
			continue // it is being written or removed
		}
		if meta.Index > index {
			path, index = filepath.Dir(name), meta.Index
		}
	}
	if path == "" {
		return "", 0, fmt.Errorf("%w: no snapshot yet", errNoEffect)
	}
	return path, index, nil
}

// cutTail takes the last pages away.
func (d *disk) cutTail(n *nemesis) error {
	info, err := os.Stat(d.log())
	if err != nil {
		return err
	}
	pages := 1 + n.rng.Int64N(8)
	return os.Truncate(d.log(), info.Size()-min(info.Size()/2, pages*int64(os.Getpagesize())))
}

// appendJunk is what a crash may leave while the file grows.
func (d *disk) appendJunk(n *nemesis) (err error) {
	file, err := os.OpenFile(d.log(), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	junk := make([]byte, 1+n.rng.IntN(os.Getpagesize()))
	for i := range junk {
		junk[i] = byte(n.rng.Uint32())
	}
	_, err = file.Write(junk)
	return errors.Join(err, file.Close())
}

// flipEntry damages what a client wrote, in an entry that the node would apply again.
func (d *disk) flipEntry(n *nemesis) error {
	_, after, err := d.newestSnapshot()
	if err != nil && !errors.Is(err, errNoEffect) {
		return err
	}
	var largest []byte
	err = d.entries(func(index uint64, value []byte) bool {
		if index > after && len(value) > len(largest) {
			largest = bytes.Clone(value)
		}
		return index > after
	})
	if err != nil {
		return err
	}
	if len(largest) < 512 {
		return fmt.Errorf("%w: no entry with a payload is newer than the snapshot", errNoEffect)
	}
	data, err := os.ReadFile(d.log())
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
		flip(data[from+i:], at, n.rng)
		from += i + len(largest)
		found++
	}
	if found == 0 {
		return fmt.Errorf("%w: the entry does not lie in one piece", errNoEffect)
	}
	return os.WriteFile(d.log(), data, 0o600)
}

func (d *disk) flipSnapshot(n *nemesis) error {
	dir, _, err := d.newestSnapshot()
	if err != nil {
		return err
	}
	return flipIn(filepath.Join(dir, "state.bin"), n.rng)
}

func (d *disk) flipAnywhere(n *nemesis) error { return flipIn(d.log(), n.rng) }

func flipIn(path string, rng *rand.Rand) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	flip(data, rng.IntN(len(data)), rng)
	return os.WriteFile(path, data, 0o600)
}

func flip(data []byte, at int, rng *rand.Rand) { data[at] ^= 1 << rng.IntN(8) }
