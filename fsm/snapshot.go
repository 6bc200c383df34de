package fsm

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/bourse-dev/bourse/internal/planted"
)

// A snapshot is: magic, format (1 byte), frames, SHA-256 of all that. A frame is: what it
// holds (1 byte), length (varint), payload. The header comes first, then the rows in key
// order, each followed by its account's holds in order of their holders, then the results in
// order of arrival, then an empty end frame. Same state, same bytes.

const (
	snapshotMagic  = "bourse-snapshot\n"
	snapshotFormat = 1
)

const (
	frameHeader = 1
	frameRow    = 2
	frameHold   = 3
	frameResult = 4
	frameEnd    = 5
)

// snapshotHeader says what must follow.
type snapshotHeader struct {
	revision  Revision
	time      Millis
	behaviour uint32
	rows      uint64
	holds     uint64
	results   uint64
	forgotten Revision
	hash      Hash
}

func appendHeader(b []byte, h *snapshotHeader) []byte {
	b = putUint(b, 1, uint64(h.revision))
	b = putInt(b, 2, int64(h.time))
	b = putUint(b, 3, uint64(h.behaviour))
	b = putUint(b, 4, h.rows)
	b = putUint(b, 5, h.holds)
	b = putUint(b, 6, h.results)
	b = putUint(b, 7, uint64(h.forgotten))
	return putBytes(b, 8, h.hash[:])
}

func parseHeader(b []byte) (h snapshotHeader, err error) {
	d := decoder{rest: b}
	for d.next(0) {
		switch d.num {
		case 1:
			h.revision = Revision(d.uint())
		case 2:
			if h.time = d.millis(); h.time < 0 || h.time > MaxMillis {
				d.fail(ErrCorrupt, "time %d is out of range", h.time)
			}
		case 3:
			h.behaviour = uint32(d.upTo(1<<32 - 1))
		case 4:
			h.rows = d.uint()
		case 5:
			h.holds = d.uint()
		case 6:
			h.results = d.uint()
		case 7:
			h.forgotten = Revision(d.uint())
		case 8:
			if n := copy(h.hash[:], d.bytes(len(h.hash))); d.err == nil && n != len(h.hash) {
				d.fail(ErrCorrupt, "hash has %d bytes", n)
			}
		default:
			d.unknown()
		}
	}
	if d.err == nil && h.hash == (Hash{}) {
		d.fail(ErrCorrupt, "no hash")
	}
	return h, d.err
}

func (s *State) header() snapshotHeader {
	h := snapshotHeader{
		revision: s.revision, time: s.time, behaviour: s.behaviour,
		rows: uint64(s.rows.Len()), results: uint64(s.results.len()),
		forgotten: s.results.forgotten, hash: s.Hash(),
	}
	for row := range s.Scan("") {
		if row.Account != nil {
			h.holds += uint64(row.Account.HoldCount())
		}
	}
	return h
}

// WriteSnapshot writes the state; it may run beside later Applies. Whether the kept hash is
// still the rows' is for the caller to ask first (FullHash).
func WriteSnapshot(w io.Writer, s *State) error {
	digest := sha256.New()
	out := snapshotWriter{to: bufio.NewWriterSize(io.MultiWriter(w, digest), 64<<10)}
	out.raw(append([]byte(snapshotMagic), snapshotFormat))
	header := s.header()
	out.frame(frameHeader, appendHeader(out.start(), &header))
	for row := range s.Scan("") {
		out.frame(frameRow, appendRow(out.start(), row))
		if row.Account == nil {
			continue
		}
		for hold := range row.Account.holds.all() {
			out.frame(frameHold, appendHold(out.start(), hold))
		}
	}
	for r := range s.results.all() {
		if planted.Bug == planted.SnapshotMissesTable {
			break
		}
		out.frame(frameResult, appendRemembered(out.start(), r))
	}
	out.frame(frameEnd, out.start())
	if out.err == nil {
		out.err = out.to.Flush()
	}
	if out.err != nil {
		return fmt.Errorf("write snapshot: %w", out.err)
	}
	if _, err := w.Write(digest.Sum(nil)); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// snapshotWriter keeps the first error and one buffer for all frames.
type snapshotWriter struct {
	to  *bufio.Writer
	buf []byte
	err error
}

func (w *snapshotWriter) start() []byte { return w.buf[:0] }

func (w *snapshotWriter) raw(b []byte) {
	if w.err == nil {
		_, w.err = w.to.Write(b)
	}
}

func (w *snapshotWriter) frame(holds byte, payload []byte) {
	w.buf = payload
	if w.err == nil && len(payload) > maxFrameBytes {
		w.err = fmt.Errorf("%w: frame has %d bytes, the limit is %d", ErrTooLarge, len(payload), maxFrameBytes)
	}
	var head [11]byte
	w.raw(protowire.AppendVarint(append(head[:0], holds), uint64(len(payload))))
	w.raw(payload)
}
