package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// segmentLog is a log in segments: store/DESIGN.md says how it lies on disk. This reader trusts what it reads.
type segmentLog struct{ dir string }

const (
	sectorSize = 512
	sectorHead = 12
	sectorMark = 0xB0E5

	beginRecord = 1
	entryRecord = 2
	recordHead  = 5
	entryHead   = 29
)

// entrySpot is where the data of an entry lies, in the payload of an append at a sector of a segment.
type entrySpot struct {
	segment      string
	sector       int
	offset, size int
}

// segmentState is what the segments say, in the end.
type segmentState struct {
	entries map[uint64]entrySpot // also older ones
	last    uint64
	newest  string // segment
	end     int    // of newest, in sectors
	appends uint32 // in newest
}

func (l segmentLog) read() (s *segmentState, err error) {
	paths, err := filepath.Glob(filepath.Join(l.dir, "*.log"))
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s holds no segment", l.dir)
	}
	s = &segmentState{entries: map[uint64]entrySpot{}}
	for _, path := range paths { // sorted
		if err == nil {
			err = s.segment(path)
		}
	}
	return s, err
}

func (s *segmentState) segment(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	s.newest, s.end, s.appends = path, 0, 0
	var payload []byte
	for at := 0; at+sectorSize <= len(data) && binary.BigEndian.Uint16(data[at+10:]) == sectorMark; at += sectorSize {
		payload = append(payload, data[at+sectorHead:at+sectorSize]...)
		if left := binary.BigEndian.Uint16(data[at+8:]); left > 0 {
			continue
		}
		s.records(payload)
		s.appends, s.end, payload = binary.BigEndian.Uint32(data[at+4:]), at/sectorSize+1, nil
	}
	return nil
}

func (s *segmentState) records(payload []byte) {
	for at := 0; at+recordHead <= len(payload) && payload[at] != 0; {
		size := int(binary.BigEndian.Uint32(payload[at+1:]))
		body := payload[at+recordHead:][:size]
		switch payload[at] {
		case beginRecord:
			s.last = binary.BigEndian.Uint64(body[17:]) - 1
		case entryRecord:
			s.last = binary.BigEndian.Uint64(body)
			s.entries[s.last] = entrySpot{s.newest, s.end, at + recordHead + entryHead, size - entryHead}
		}
		at += recordHead + size
	}
}

func (l segmentLog) lastIndex() (uint64, error) {
	s, err := l.read()
	return s.last, err
}

// cut takes the last sectors away.
func (l segmentLog) cut(rng *rand.Rand) error {
	s, err := l.read()
	if err != nil {
		return err
	}
	return cutFile(s.newest, sectorSize, rng)
}

// tear writes the first half of an append, as a power cut may leave it.
func (l segmentLog) tear(rng *rand.Rand) error {
	s, err := l.read()
	if err != nil {
		return err
	}
	file, err := os.OpenFile(s.newest, os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	length := 2 + rng.IntN(6)
	if err == nil && int64(s.end+length)*sectorSize >= info.Size() {
		err = fmt.Errorf("%w: the segment is full", errNoEffect)
	}
	for i := 0; err == nil && i < length/2; i++ {
		_, err = file.WriteAt(s.sector(i, length), int64(s.end+i)*sectorSize)
	}
	return errors.Join(err, file.Close())
}

// sector i of a next append that has so many.
func (s *segmentState) sector(i, length int) []byte {
	var segment uint64
	_, _ = fmt.Sscanf(filepath.Base(s.newest), "%016x", &segment)
	table := crc32.MakeTable(crc32.Castagnoli)
	b := make([]byte, sectorSize)
	binary.BigEndian.PutUint32(b[4:], s.appends+1)
	binary.BigEndian.PutUint16(b[8:], uint16(length-1-i))
	binary.BigEndian.PutUint16(b[10:], sectorMark)
	place := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, segment), uint64(s.end+i))
	binary.BigEndian.PutUint32(b, crc32.Update(crc32.Checksum(place, table), table, b[4:]))
	return b
}

func (l segmentLog) flipEntry(after uint64, rng *rand.Rand) error {
	s, err := l.read()
	if err != nil {
		return err
	}
	var largest entrySpot
	for index := after + 1; index <= s.last; index++ {
		if at := s.entries[index]; at.size > largest.size {
			largest = at
		}
	}
	if largest.size == 0 {
		return errNoEntry
	}
	data, err := os.ReadFile(largest.segment)
	if err != nil {
		return err
	}
	const payload = sectorSize - sectorHead
	at := largest.offset + rng.IntN(largest.size)
	flip(data, (largest.sector+at/payload)*sectorSize+sectorHead+at%payload, rng)
	return os.WriteFile(largest.segment, data, 0o600)
}

func (l segmentLog) flipAnywhere(rng *rand.Rand) error {
	paths, err := filepath.Glob(filepath.Join(l.dir, "*.log"))
	if err != nil {
		return err
	}
	return flipIn(paths[rng.IntN(len(paths))], rng)
}

// damageShows wherever it is.
func (l segmentLog) damageShows() bool { return true }
