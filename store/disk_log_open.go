package store

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const segmentSuffix = ".log"

// readDiskLog proves and opens, without writing, all that lies in the directory. There may be none yet.
func readDiskLog(dir string, sectors int) (*diskLog, error) {
	d := &diskLog{
		dir: dir, sectors: sectors, files: map[uint64]*os.File{},
		ledger:  ledger{values: map[string][]byte{}, first: 1},
		step:    func(string) error { return nil },
		covered: func() (uint64, error) { return math.MaxUint64 - 1, nil },
	}
	numbers, err := segmentsIn(dir)
	if err != nil {
		return nil, err
	}
	for i, number := range numbers {
		if number != numbers[0]+uint64(i) { //nolint:gosec // not negative
			return nil, fmt.Errorf("%w: %s is missing", ErrCorrupt, d.path(numbers[0]+uint64(i))) //nolint:gosec // not negative
		}
		last := i == len(numbers)-1
		if err := d.read(number, i == 0, last, i+2 == len(numbers)); err != nil {
			if unread := (*fs.PathError)(nil); errors.As(err, &unread) { // it says nothing of what lies there
				return nil, fmt.Errorf("read the log: %w", err)
			}
			return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, d.path(number), err)
		}
		if d.unused != 0 {
			break
		}
	}
	if d.ledger.sealed {
		return nil, fmt.Errorf("%w: %s is missing", ErrCorrupt, d.path(d.newest+1))
	}
	if index, found := d.ledger.missing(); found {
		return nil, fmt.Errorf("%w: the segment of entry %d is missing, before %s", ErrCorrupt, index, d.path(d.oldest))
	}
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func segmentsIn(dir string) (numbers []uint64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the log: %w", err)
	}
	for _, e := range entries {
		name, isSegment := strings.CutSuffix(e.Name(), segmentSuffix)
		if !isSegment {
			continue
		}
		var number uint64
		if _, err := fmt.Sscanf(name, "%016x", &number); err != nil || number == 0 || len(name) != 16 {
			return nil, fmt.Errorf("%w: %s is no name of a segment", ErrCorrupt, filepath.Join(dir, e.Name()))
		}
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	return numbers, nil
}

// read one segment. Where it is not sealed it must be the last, or all but the last, which is unused.
func (d *diskLog) read(number uint64, isFirst, isLast, isNext bool) error {
	found, err := d.scan(number, func(sector int, payload []byte) error {
		if sector == 0 {
			return d.ledger.open(number, payload, isFirst)
		}
		return d.ledger.take(number, sector, payload)
	})
	switch {
	case err != nil:
		return err
	case found.appends == 0:
		return errors.New("is blank")
	case d.ledger.sealed && found.torn > 0:
		return errors.New("there is something behind its seal")
	}
	if isFirst {
		d.oldest = number
	}
	d.newest, d.appends, d.end, d.dirty = number, found.appends, found.end, found.torn
	if isLast || d.ledger.sealed {
		return nil
	}
	if !isNext {
		return errors.New("is not sealed, though others follow")
	}
	next, err := d.scan(number+1, func(int, []byte) error { return nil })
	if err != nil || next.appends > 1 || next.torn > 0 {
		return errors.Join(errors.New("is not sealed, though the next one is in use"), err)
	}
	d.unused = number + 1
	return nil
}

func (d *diskLog) scan(number uint64, visit func(sector int, payload []byte) error) (segmentScan, error) {
	b, err := os.ReadFile(d.path(number))
	if err != nil {
		return segmentScan{}, err
	}
	size := d.sectors * sectorSize
	if len(b) < size {
		return segmentScan{}, fmt.Errorf("cut short: %d bytes of %d", len(b), size)
	}
	return scanSegment(number, b[:size], visit) // what is behind is never read
}

// start writing: clear away what a crash has left, and make the first segment where there is none.
func (d *diskLog) start() error {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	if d.newest != 0 { // before the unused segment goes: a seal that may be there must be gone for good
		if err := errors.Join(d.settle(), d.blank()); err != nil {
			return err
		}
	}
	leftovers := []string{d.nextPath()}
	if d.unused != 0 {
		leftovers = append(leftovers, d.path(d.unused))
		d.unused = 0
	}
	for _, path := range leftovers {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := syncDir(d.dir); err != nil {
		return err
	}
	if d.newest == 0 {
		return d.rotate()
	}
	return d.removeOldest()
}

// settle makes durable what was read: that of a process killed before its sync lies in the page cache only.
func (d *diskLog) settle() error {
	for _, file := range d.files {
		if err := d.step("settle"); err != nil {
			return err
		}
		if err := syncData(file); err != nil {
			return err
		}
	}
	return nil
}

func (d *diskLog) open() (err error) {
	for number := max(d.oldest, 1); number <= d.newest; number++ {
		if d.files[number], err = os.OpenFile(d.path(number), os.O_RDWR, 0); err != nil {
			delete(d.files, number)
			return err
		}
	}
	return nil
}
