package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// write an append, in a new segment where it does not fit beside what is kept: with one sync otherwise. The
// last sector of a segment is kept for its seal.
func (d *diskLog) write(payload []byte, kept int) error {
	if len(payload) == 0 {
		return nil
	}
	if d.end+sectorsFor(len(payload))+kept >= d.sectors {
		if err := d.rotate(); err != nil {
			return fmt.Errorf("begin a new segment of the log: %w", err)
		}
	}
	return d.put(payload)
}

// put an append behind the last.
func (d *diskLog) put(payload []byte) error {
	if err := d.blank(); err != nil {
		return err
	}
	sectors := packSectors(place{d.newest, uint64(d.end)}, d.appends+1, payload) //nolint:gosec // not negative
	d.dirty = len(sectors) / sectorSize
	if err := d.writeAt("append", sectors); err != nil {
		return err
	}
	d.mu.Lock()
	err := d.ledger.take(d.newest, d.end, payload)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	d.end += d.dirty
	d.appends++
	d.dirty = 0
	if d.end > d.sectors/2 && !d.asked {
		d.asked = true
		d.making.Go(func() { d.spare, _ = d.makeBlank() }) // where that fails, rotate tries anew and says why
	}
	return nil
}

// blank what a failed or torn append has left: another append, torn in its turn, must not be completed by it.
func (d *diskLog) blank() error {
	if d.dirty == 0 {
		return nil
	}
	if err := d.writeAt("blank", make([]byte, d.dirty*sectorSize)); err != nil {
		return err
	}
	d.dirty = 0
	return nil
}

func (d *diskLog) writeAt(what string, b []byte) error {
	if err := d.step(what); err != nil {
		return err
	}
	file := d.files[d.newest]
	if _, err := file.WriteAt(b, int64(d.end)*sectorSize); err != nil {
		return d.named(d.newest, err)
	}
	if err := d.step("sync " + what); err != nil {
		return err
	}
	return d.named(d.newest, syncData(file))
}

// named says which segment an error is of: a file knows only the name under which it was made.
func (d *diskLog) named(number uint64, err error) error {
	if err == nil {
		return nil
	}
	if old := (*os.PathError)(nil); errors.As(err, &old) {
		return &os.PathError{Op: old.Op, Path: d.path(number), Err: old.Err}
	}
	return fmt.Errorf("%s: %w", d.path(number), err)
}

// rotate makes the next segment, then seals this one: a sealed segment without a next one is damage, and a
// next one that holds nothing, behind one that is not sealed, has never been used.
func (d *diskLog) rotate() error {
	number := d.newest + 1
	file, end, err := d.create(number)
	if err != nil {
		return err
	}
	if d.newest > 0 {
		if err := d.put(appendRecord(nil, sealRecord)); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	d.mu.Lock()
	d.ledger.sealed, d.files[number] = false, file
	d.mu.Unlock()
	d.newest, d.appends, d.end = number, 1, end
	if d.oldest == 0 {
		d.oldest = number
	}
	return nil
}

// create a segment that holds what it begins with, under its name and durable.
func (d *diskLog) create(number uint64) (file *os.File, end int, err error) {
	if err := d.step("create"); err != nil {
		return nil, 0, err
	}
	d.making.Wait()
	file, d.spare, d.asked = d.spare, nil, false
	if file == nil {
		if file, err = d.makeBlank(); err != nil {
			return nil, 0, err
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	begin := packSectors(place{number, 0}, 1, d.ledger.begin(number))
	if _, err := file.WriteAt(begin, 0); err != nil {
		return nil, 0, err
	}
	if err := file.Sync(); err != nil {
		return nil, 0, err
	}
	if err := d.step("name"); err != nil {
		return nil, 0, err
	}
	if err := os.Rename(file.Name(), d.path(number)); err != nil {
		return nil, 0, err
	}
	return file, len(begin) / sectorSize, syncDir(d.dir)
}

// makeBlank makes a segment without name and number. Blank sectors are written, not only reserved, and durable: a sync of
// what overwrites them need not change the file's metadata.
func (d *diskLog) makeBlank() (file *os.File, err error) {
	path := d.nextPath()
	if file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		return nil, err
	}
	if _, err = file.Write(make([]byte, d.sectors*sectorSize)); err == nil {
		err = file.Sync()
	}
	if err != nil { // where the disk is full, a snapshot may need what is left of it
		return nil, errors.Join(err, file.Close(), os.Remove(path))
	}
	return file, nil
}

// removeOldest removes segments without entries. The rest must be without a gap after a crash, so one by one.
func (d *diskLog) removeOldest() error {
	needed := d.newest
	if len(d.ledger.spots) > 0 {
		needed = d.ledger.spots[0].segment
	}
	for ; d.oldest < needed; d.oldest++ {
		if err := d.step("remove"); err != nil {
			return err
		}
		if err := os.Remove(d.path(d.oldest)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		d.forget(d.oldest)
		if err := syncDir(d.dir); err != nil {
			return err
		}
	}
	return nil
}

func (d *diskLog) forget(number uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if file := d.files[number]; file != nil {
		_ = file.Close() // it was read only, and is gone
		delete(d.files, number)
	}
}

func (d *diskLog) path(number uint64) string {
	return filepath.Join(d.dir, fmt.Sprintf("%016x%s", number, segmentSuffix))
}

// nextPath is that of a segment being made.
func (d *diskLog) nextPath() string { return filepath.Join(d.dir, "next"+segmentSuffix+tmpSuffix) }
