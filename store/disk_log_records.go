package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// An append holds records: kind 1, size 4, body. A zero ends them, and zeros fill the last sector.
const (
	endOfRecords = iota
	// beginRecord is the first of each segment, with the log's ends; all values of the stable store follow. So what
	// lies in earlier segments is not needed but for its entries.
	beginRecord
	// entryRecord adds an entry. It takes away those from its index on, and all where it leaves a gap: so does Raft,
	// after the install of a snapshot, and where it was told that an append failed that did not.
	entryRecord
	valueRecord // sets a value of the stable store
	firstRecord // takes entries before an index away
	sealRecord  // is the last of a segment: there is a next one
)

const (
	recordHead = 5
	entryHead  = 8 + 8 + 1 + 8 + 4 // index, term, type, time, size of the extensions
	logFormat  = 1
	// noTime stands for the zero time.
	noTime = math.MinInt64
)

func appendRecord(b []byte, kind byte, body ...[]byte) []byte {
	size := 0
	for _, part := range body {
		size += len(part)
	}
	b = binary.BigEndian.AppendUint32(append(b, kind), uint32(size)) //nolint:gosec // maxAppend bounds it
	for _, part := range body {
		b = append(b, part...)
	}
	return b
}

func appendEntry(b []byte, l *raft.Log) []byte {
	at := int64(noTime)
	if !l.AppendedAt.IsZero() {
		at = l.AppendedAt.UnixNano()
	}
	head := make([]byte, 0, entryHead)
	head = binary.BigEndian.AppendUint64(head, l.Index)
	head = binary.BigEndian.AppendUint64(head, l.Term)
	head = append(head, byte(l.Type))
	head = binary.BigEndian.AppendUint64(head, uint64(at))                //nolint:gosec // and back
	head = binary.BigEndian.AppendUint32(head, uint32(len(l.Extensions))) //nolint:gosec // maxAppend bounds it
	return appendRecord(b, entryRecord, head, l.Extensions, l.Data)
}

func appendValue(b, key, value []byte) []byte {
	return appendRecord(b, valueRecord, []byte{byte(len(key))}, key, value)
}

// entrySize is what an entry takes in an append.
func entrySize(l *raft.Log) int { return recordHead + entryHead + len(l.Extensions) + len(l.Data) }

// readEntry copies.
func readEntry(body []byte, l *raft.Log) error {
	if len(body) < entryHead || uint64(binary.BigEndian.Uint32(body[25:])) > uint64(len(body)-entryHead) {
		return fmt.Errorf("an entry has %d bytes", len(body))
	}
	*l = raft.Log{
		Index: binary.BigEndian.Uint64(body),
		Term:  binary.BigEndian.Uint64(body[8:]),
		Type:  raft.LogType(body[16]),
	}
	if at := int64(binary.BigEndian.Uint64(body[17:])); at != noTime { //nolint:gosec // as it was written
		l.AppendedAt = time.Unix(0, at)
	}
	extensions := binary.BigEndian.Uint32(body[25:])
	if rest := body[entryHead:]; extensions > 0 {
		l.Extensions = slices.Clone(rest[:extensions])
	}
	l.Data = slices.Clone(body[entryHead+extensions:])
	return nil
}

// eachRecord visits the records of an append; at is where a body begins in the payload.
func eachRecord(payload []byte, visit func(kind byte, at int, body []byte) error) error {
	for at := 0; at < len(payload); {
		kind := payload[at]
		if kind == endOfRecords {
			return zerosOnly(payload[at:])
		}
		if len(payload)-at < recordHead {
			return errors.New("a record is cut short")
		}
		size := int(binary.BigEndian.Uint32(payload[at+1:]))
		if at += recordHead; size > len(payload)-at {
			return fmt.Errorf("a record of %d bytes, where there are %d", size, len(payload)-at)
		}
		if err := visit(kind, at, payload[at:at+size]); err != nil {
			return err
		}
		at += size
	}
	return nil
}

func zerosOnly(b []byte) error {
	for _, c := range b {
		if c != 0 {
			return errors.New("there is something behind the last record")
		}
	}
	return nil
}

// spot is where an entry lies: in the payload of the append at a sector. A segment of 0 is one removed.
type spot struct {
	segment    uint64
	sector     int
	from, size int
}

// ledger is what the records say, one after the other: what Raft sees of the log. Appending and recovery
// both go through take, so what is read back is what was told.
type ledger struct {
	first  uint64 // of spots
	spots  []spot
	values map[string][]byte
	sealed bool
}

func (l *ledger) next() uint64 { return l.first + uint64(len(l.spots)) }

// begin encodes what a segment begins with.
func (l *ledger) begin(segment uint64) []byte {
	b := appendRecord(nil, beginRecord, []byte{logFormat}, indexKey(segment), indexKey(l.first), indexKey(l.next()))
	for _, key := range slices.Sorted(maps.Keys(l.values)) {
		b = appendValue(b, []byte(key), l.values[key])
	}
	return b
}

// take an append that lies at a sector.
func (l *ledger) take(segment uint64, sector int, payload []byte) error {
	return eachRecord(payload, func(kind byte, at int, body []byte) error {
		if l.sealed {
			return errors.New("the segment was sealed before")
		}
		switch kind {
		case entryRecord:
			if len(body) < entryHead {
				return fmt.Errorf("an entry has %d bytes", len(body))
			}
			l.add(binary.BigEndian.Uint64(body), spot{segment, sector, at, len(body)})
			return nil
		case valueRecord:
			if len(body) < 1 || int(body[0]) > len(body)-1 {
				return fmt.Errorf("a value has %d bytes", len(body))
			}
			l.values[string(body[1:1+body[0]])] = slices.Clone(body[1+body[0]:])
			return nil
		case firstRecord:
			if len(body) != indexSize {
				return fmt.Errorf("an index has %d bytes", len(body))
			}
			l.remove(binary.BigEndian.Uint64(body))
			return nil
		case sealRecord:
			l.sealed = true
			return nil
		}
		return fmt.Errorf("record of unknown kind %d", kind)
	})
}

func (l *ledger) add(index uint64, at spot) {
	if len(l.spots) == 0 || index < l.first || index > l.next() {
		l.first, l.spots = index, nil
	}
	l.spots = append(l.spots[:index-l.first], at)
}

// remove entries before an index.
func (l *ledger) remove(index uint64) {
	gone := min(max(index, l.first), l.next()) - l.first
	l.first, l.spots = l.first+gone, slices.Clone(l.spots[gone:])
}

// open takes the first append of a segment: where an earlier segment was read it must say what that one
// ended with, otherwise it is what is known.
func (l *ledger) open(segment uint64, payload []byte, isFirst bool) error {
	l.sealed = false
	if isFirst {
		const size = 1 + 3*indexSize
		if len(payload) < recordHead+size || payload[0] != beginRecord || binary.BigEndian.Uint32(payload[1:]) != size {
			return errors.New("it does not begin as a segment does")
		}
		body := payload[recordHead : recordHead+size]
		if body[0] != logFormat {
			return fmt.Errorf("it has format %d, this version knows %d", body[0], logFormat)
		}
		first, next := binary.BigEndian.Uint64(body[9:]), binary.BigEndian.Uint64(body[17:])
		if next < first {
			return fmt.Errorf("it says that entries %d to %d were there", first, next-1)
		}
		l.first, l.spots, l.values = first, make([]spot, next-first), map[string][]byte{}
		if err := l.take(segment, 0, payload[recordHead+size:]); err != nil {
			return err
		}
	}
	want := l.begin(segment)
	if len(payload) < len(want) || string(payload[:len(want)]) != string(want) {
		return errors.New("it does not begin where the one before ends")
	}
	return zerosOnly(payload[len(want):])
}

// missing is the first entry that lies in a segment that is gone.
func (l *ledger) missing() (index uint64, found bool) {
	if len(l.spots) > 0 && l.spots[0].segment == 0 {
		return l.first, true
	}
	return 0, false
}
