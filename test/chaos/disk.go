package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// disk is the data directory of a node that does not run.
type disk struct{ dir string }

// nodeLog is the log in a directory, as the build that wrote it last has it.
type nodeLog interface {
	lastIndex() (uint64, error)
	cut(*rand.Rand) error
	// tear leaves what a crash may leave behind the end.
	tear(*rand.Rand) error
	// flipEntry damages what a client wrote, in an entry behind an index.
	flipEntry(after uint64, rng *rand.Rand) error
	flipAnywhere(*rand.Rand) error
	// damageShows says whether cut and flipAnywhere are refused, always.
	damageShows() bool
}

var errNoEntry = fmt.Errorf("%w: no entry with a payload is newer than the snapshot", errNoEffect)

func (d *disk) inSegments() bool {
	_, err := os.Stat(filepath.Join(d.dir, "log"))
	return err == nil
}

func (d *disk) log() nodeLog {
	if d.inSegments() {
		return segmentLog{filepath.Join(d.dir, "log")}
	}
	return boltLog{filepath.Join(d.dir, "raft.db")}
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

func (d *disk) cutLog(n *nemesis) error { return d.log().cut(n.rng) }

func (d *disk) tearLog(n *nemesis) error { return d.log().tear(n.rng) }

// flipEntry damages an entry that the node would apply again.
func (d *disk) flipEntry(n *nemesis) error {
	_, after, err := d.newestSnapshot()
	if err != nil && !errors.Is(err, errNoEffect) {
		return err
	}
	return d.log().flipEntry(after, n.rng)
}

func (d *disk) flipSnapshot(n *nemesis) error {
	dir, _, err := d.newestSnapshot()
	if err != nil {
		return err
	}
	return flipIn(filepath.Join(dir, "state.bin"), n.rng)
}

func (d *disk) flipAnywhere(n *nemesis) error { return d.log().flipAnywhere(n.rng) }

// cutFile takes up to 8 blocks from its end.
func cutFile(path string, block int, rng *rand.Rand) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, info.Size()-min(info.Size()/2, (1+rng.Int64N(8))*int64(block)))
}

func flipIn(path string, rng *rand.Rand) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	flip(data, rng.IntN(len(data)), rng)
	return os.WriteFile(path, data, 0o600)
}

func flip(data []byte, at int, rng *rand.Rand) { data[at] ^= 1 << rng.IntN(8) }
