package fsm

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// ReadSnapshot reads what WriteSnapshot wrote, to the end of r, and verifies all of it: the
// checksum, the counts, the order, every account against its holds, every hold against its
// holder, and the state hash. Nothing is returned that was not verified.
func ReadSnapshot(r io.Reader) (*State, error) {
	s, err := readSnapshot(r)
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	return s, nil
}

func readSnapshot(r io.Reader) (*State, error) {
	in := snapshotReader{from: bufio.NewReaderSize(r, 64<<10), digest: sha256.New()}
	magic, err := in.raw(len(snapshotMagic) + 1)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(magic[:len(snapshotMagic)], []byte(snapshotMagic)) {
		return nil, fmt.Errorf("%w: not a snapshot", ErrCorrupt)
	}
	if format := magic[len(snapshotMagic)]; format != snapshotFormat {
		return nil, fmt.Errorf("%w: snapshot format %d, want %d", ErrUnknownCommand, format, snapshotFormat)
	}
	b := builder{rows: iradix.New[*Row]().Txn()}
	for !b.done {
		holds, payload, err := in.frame()
		if err != nil {
			return nil, err
		}
		if err := b.add(holds, payload); err != nil {
			return nil, err
		}
	}
	if err := in.end(); err != nil {
		return nil, err
	}
	return b.finish()
}

// snapshotReader hashes what it reads.
type snapshotReader struct {
	from   *bufio.Reader
	digest hash.Hash
	buf    []byte
	one    [1]byte
}

func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: the snapshot is cut off", ErrCorrupt)
	}
	return err
}

// raw returns the next n bytes, valid until the next call. The buffer grows with what is
// there, not with what a damaged length claims.
func (in *snapshotReader) raw(n int) ([]byte, error) {
	in.buf = in.buf[:0]
	for len(in.buf) < n {
		chunk := min(n-len(in.buf), 64<<10)
		at := len(in.buf)
		in.buf = append(in.buf, make([]byte, chunk)...)
		if _, err := io.ReadFull(in.from, in.buf[at:]); err != nil {
			return nil, cutOff(err)
		}
	}
	in.digest.Write(in.buf)
	return in.buf, nil
}

// ReadByte lets binary.ReadUvarint read through the digest.
func (in *snapshotReader) ReadByte() (byte, error) {
	c, err := in.from.ReadByte()
	if err == nil {
		in.one[0] = c
		in.digest.Write(in.one[:])
	}
	return c, err
}

func (in *snapshotReader) frame() (holds byte, payload []byte, err error) {
	if holds, err = in.ReadByte(); err != nil {
		return 0, nil, cutOff(err)
	}
	size, err := binary.ReadUvarint(in)
	if err != nil {
		return 0, nil, cutOff(err)
	}
	if size > maxFrameBytes {
		return 0, nil, fmt.Errorf("%w: frame of %d bytes, the limit is %d", ErrCorrupt, size, maxFrameBytes)
	}
	payload, err = in.raw(int(size))
	return holds, payload, err
}

func (in *snapshotReader) end() error {
	want := in.digest.Sum(nil)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(in.from, got); err != nil {
		return cutOff(err)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%w: checksum of the snapshot does not match", ErrCorrupt)
	}
	switch _, err := in.from.ReadByte(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: bytes after the end of the snapshot", ErrCorrupt)
}

// builder makes a state of frames.
type builder struct {
	header  *snapshotHeader
	rows    *iradix.Txn[*Row]
	last    *Row
	holds   *iradix.Txn[*Hold] // of the last row's account
	holder  string             // of the last hold
	held    uint64
	results results
	hasher  hasher
	sum     sum
	done    bool
}

func (b *builder) add(holds byte, payload []byte) error {
	if (b.header == nil) != (holds == frameHeader) {
		return fmt.Errorf("%w: frame %d where the header must be the first", ErrCorrupt, holds)
	}
	switch holds {
	case frameHeader:
		return b.addHeader(payload)
	case frameRow:
		return b.addRow(payload)
	case frameHold:
		return b.addHold(payload)
	case frameResult:
		return b.addResult(payload)
	case frameEnd:
		b.endRow()
		b.done = true
		if len(payload) > 0 {
			return fmt.Errorf("%w: end frame with a payload", ErrCorrupt)
		}
		return nil
	}
	return fmt.Errorf("%w: snapshot frame %d", ErrUnknownCommand, holds)
}

func (b *builder) addHeader(payload []byte) error {
	h, err := parseHeader(payload)
	if err != nil {
		return fmt.Errorf("header: %w", err)
	}
	if h.behaviour < FirstBehaviour {
		return fmt.Errorf("%w: behaviour version %d", ErrCorrupt, h.behaviour)
	}
	if h.behaviour > SupportedBehaviour {
		return fmt.Errorf("%w: snapshot has %d, supported is %d", ErrUnsupportedBehaviour, h.behaviour, SupportedBehaviour)
	}
	b.header = &h
	return nil
}

func (b *builder) addRow(payload []byte) error {
	row, err := parseRow(payload)
	if err != nil {
		return fmt.Errorf("row after %q: %w", b.lastKey(), err)
	}
	switch {
	case b.results.len() > 0:
		return fmt.Errorf("%w: row %q after results", ErrCorrupt, row.Key)
	case row.Key <= b.lastKey():
		return fmt.Errorf("%w: row %q after %q", ErrCorrupt, row.Key, b.lastKey())
	case max(row.Revision(), row.SpecRev, row.Created) > b.header.revision:
		return fmt.Errorf("%w: row %q is newer than the snapshot", ErrCorrupt, row.Key)
	case row.Account != nil && !row.Account.valid():
		return fmt.Errorf("%w: amounts of account %q", ErrCorrupt, row.Key)
	}
	b.endRow()
	row.sum = b.hasher.row(row)
	b.sum = b.sum.add(row.sum)
	b.rows.Insert([]byte(row.Key), row)
	b.last = row
	if row.Account != nil {
		b.holds, b.holder = iradix.New[*Hold]().Txn(), ""
	}
	return nil
}

func (b *builder) lastKey() string {
	if b.last == nil {
		return ""
	}
	return b.last.Key
}

// endRow gives the last row its holds.
func (b *builder) endRow() {
	if b.holds == nil {
		return
	}
	if tree := b.holds.Commit(); tree.Len() > 0 {
		b.last.Account.holds = holdTree{tree}
	}
	b.holds = nil
}

func (b *builder) addHold(payload []byte) error {
	hold, err := parseHold(payload)
	if err != nil {
		return fmt.Errorf("hold on %q: %w", b.lastKey(), err)
	}
	switch {
	case b.holds == nil || b.results.len() > 0:
		return fmt.Errorf("%w: hold of %q without an account", ErrCorrupt, hold.Holder)
	case hold.Holder <= b.holder:
		return fmt.Errorf("%w: hold of %q after %q", ErrCorrupt, hold.Holder, b.holder)
	case !hold.Amounts.Valid() || len(hold.Amounts) == 0 || !hold.Used.Valid():
		return fmt.Errorf("%w: amounts of %q on %q", ErrCorrupt, hold.Holder, b.lastKey())
	}
	b.holder = hold.Holder
	b.held++
	b.sum = b.sum.add(b.hasher.hold(b.last.Key, &hold))
	b.holds.Insert([]byte(hold.Holder), &hold)
	return nil
}

func (b *builder) addResult(payload []byte) error {
	r, err := parseRemembered(payload)
	switch {
	case err != nil:
		return fmt.Errorf("result %d: %w", b.results.len(), err)
	case b.results.len() >= MaxResults:
		return fmt.Errorf("%w: more than %d results", ErrCorrupt, MaxResults)
	case r.id == RequestID{} || b.results.get(r.id) != nil || r.id.Seen > b.header.revision:
		return fmt.Errorf("%w: id of result %d", ErrCorrupt, b.results.len())
	}
	b.results.put(r)
	b.sum = b.sum.add(b.hasher.result(&r))
	return nil
}

func (b *builder) finish() (*State, error) {
	h := b.header
	s := &State{
		rows: b.rows.Commit(), results: b.results, revision: h.revision,
		time: h.time, behaviour: h.behaviour, sum: b.sum,
	}
	s.results.forgotten = h.forgotten
	if got := uint64(s.rows.Len()); got != h.rows {
		return nil, fmt.Errorf("%w: %d rows, the header says %d", ErrCorrupt, got, h.rows)
	}
	if b.held != h.holds {
		return nil, fmt.Errorf("%w: %d holds, the header says %d", ErrCorrupt, b.held, h.holds)
	}
	if got := uint64(s.results.len()); got != h.results {
		return nil, fmt.Errorf("%w: %d results, the header says %d", ErrCorrupt, got, h.results)
	}
	if got := s.Hash(); got != h.hash {
		return nil, fmt.Errorf("%w: state hash is %s, the header says %s", ErrCorrupt, got, h.hash)
	}
	return s, s.verify()
}
