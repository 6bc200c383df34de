package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A segment of the log is a file of sectors, blank (all zero) when it is made. An append fills the next ones, and a
// sector is never written twice, so one sync is enough for an append. What a power cut tears is the last append, by whole
// sectors: each of them is blank or as it was written. Anything else in a sector is damage. That is how a torn append,
// of which nobody was told, differs from a flipped bit in one that was acknowledged.
//
//	checksum 4   CRC-32C of the segment's number 8, the sector's number 8 and the sector behind this field
//	append 4     number of the append in the segment, from 1
//	left 2       sectors of the append that follow
//	mark 2       a written sector has more than one bit set, so no flip makes it blank
//	payload 500
const (
	sectorSize    = 512
	sectorHead    = 12
	sectorPayload = sectorSize - sectorHead
	sectorMark    = 0xB0E5
)

var blankSector [sectorSize]byte

// sectorsFor a payload.
func sectorsFor(payload int) int { return (payload + sectorPayload - 1) / sectorPayload }

// place is where a sector lies: its checksum covers that, so that one of another place is not taken for it.
type place struct{ segment, sector uint64 }

func (p place) sum(sector []byte) uint32 {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], p.segment)
	binary.BigEndian.PutUint64(b[8:], p.sector)
	return crc32.Update(crc32.Checksum(b[:], castagnoli), castagnoli, sector[checksumSize:])
}

// packSectors makes the sectors of an append that begins at a place.
func packSectors(at place, number uint32, payload []byte) []byte {
	count := sectorsFor(len(payload))
	b := make([]byte, count*sectorSize)
	for i := range count {
		sector := b[i*sectorSize:][:sectorSize]
		binary.BigEndian.PutUint32(sector[4:], number)
		binary.BigEndian.PutUint16(sector[8:], uint16(count-1-i)) //nolint:gosec // maxSectors bounds it
		binary.BigEndian.PutUint16(sector[10:], sectorMark)
		copy(sector[sectorHead:], payload[i*sectorPayload:])
		binary.BigEndian.PutUint32(sector, at.sum(sector))
		at.sector++
	}
	return b
}

// sectorHeader is what a written sector says of its append.
type sectorHeader struct {
	number uint32
	left   int
}

// readSector returns blank, or the header of a whole sector, or what is wrong.
func readSector(at place, sector []byte) (h sectorHeader, blank bool, err error) {
	if bytes.Equal(sector, blankSector[:]) {
		return h, true, nil
	}
	if binary.BigEndian.Uint32(sector) != at.sum(sector) || binary.BigEndian.Uint16(sector[10:]) != sectorMark {
		return h, false, fmt.Errorf("sector %d %w", at.sector, errChecksum)
	}
	h.number, h.left = binary.BigEndian.Uint32(sector[4:]), int(binary.BigEndian.Uint16(sector[8:]))
	return h, false, nil
}

// unpackSectors returns the payload of sectors that were written together, padded. None may be blank.
func unpackSectors(at place, b []byte) ([]byte, error) {
	payload := make([]byte, 0, len(b)/sectorSize*sectorPayload)
	for ; len(b) > 0; b = b[sectorSize:] {
		switch _, blank, err := readSector(at, b[:sectorSize]); {
		case err != nil:
			return nil, err
		case blank:
			return nil, fmt.Errorf("sector %d is blank", at.sector)
		}
		payload = append(payload, b[sectorHead:sectorSize]...)
		at.sector++
	}
	return payload, nil
}

// segmentScan is what a segment was found to hold.
type segmentScan struct {
	appends uint32
	end     int // the first sector behind them
	torn    int // sectors behind end of which some belong to an append that was torn; 0 where all are blank
}

// scanSegment visits the appends that are whole and proves that nothing but one torn append is behind them.
func scanSegment(segment uint64, b []byte, visit func(sector int, payload []byte) error) (s segmentScan, err error) {
	count := len(b) / sectorSize
	for s.end < count {
		length, err := wholeAppend(segment, b, s.end, s.appends+1)
		if err != nil {
			return s, err
		}
		if length == 0 {
			break
		}
		payload, err := unpackSectors(place{segment, uint64(s.end)}, b[s.end*sectorSize:(s.end+length)*sectorSize])
		if err != nil {
			return s, err
		}
		if err := visit(s.end, payload); err != nil {
			return s, fmt.Errorf("append %d at sector %d: %w", s.appends+1, s.end, err)
		}
		s.end += length
		s.appends++
	}
	for i := s.end; i < count; i++ {
		h, blank, err := readSector(place{segment, uint64(i)}, b[i*sectorSize:][:sectorSize])
		switch {
		case err != nil:
			return s, err
		case blank:
		case h.number != s.appends+1:
			return s, fmt.Errorf("append %d is missing: sector %d is of append %d", s.appends+1, i, h.number)
		default:
			s.torn = i + 1 - s.end
		}
	}
	return s, nil
}

// wholeAppend is the number of sectors of the append that begins at a sector, 0 where some are blank.
func wholeAppend(segment uint64, b []byte, from int, number uint32) (length int, err error) {
	count := len(b) / sectorSize
	for i := from; ; i++ {
		h, blank, err := readSector(place{segment, uint64(i)}, b[i*sectorSize:][:sectorSize])
		switch {
		case err != nil:
			return 0, err
		case blank:
			return 0, nil
		case i == from:
			length = h.left + 1
		}
		if h.number != number || h.left != from+length-1-i || from+length > count {
			return 0, fmt.Errorf("sector %d is of append %d with %d more, not of %d", i, h.number, h.left, number)
		}
		if h.left == 0 {
			return length, nil
		}
	}
}
