package fsm

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/bourse-dev/bourse/internal/planted"
)

// An entry is: format (1 byte), type (varint), flags (1 byte), CRC-32C of everything but
// itself (4 bytes, little endian), body. The body's first field is the time.

const entryFormat = 1

// kind is the type of a command. Numbers are in every log: append only.
type kind uint64

const (
	kindTick      kind = 1
	kindTxns      kind = 2
	kindAdvertise kind = 3
	kindBehaviour kind = 4
)

// flagIgnorable: a version that does not know the type passes over the entry. For that to be
// safe such a command changes nothing of the state, its time included, in any version.
const flagIgnorable = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// EncodeEntry encodes one Raft log entry. It fails where the entry mixes kinds or exceeds a
// limit; what it returns, Apply can decode.
func EncodeEntry(e *Entry) ([]byte, error) {
	k, err := e.kind()
	if err != nil {
		return nil, fmt.Errorf("encode entry: %w", err)
	}
	b := seal(k, 0, appendBody(nil, k, e))
	if _, err := DecodeEntry(b); err != nil {
		return nil, fmt.Errorf("encode entry: %w", err)
	}
	return b, nil
}

// DecodeEntry decodes what EncodeEntry wrote, and keeps none of b. An unknown type that is
// flagged so gives ErrIgnorable.
func DecodeEntry(b []byte) (*Entry, error) {
	k, body, err := open(b)
	if err != nil {
		return nil, err
	}
	e, err := parseBody(k, body)
	if err != nil {
		return nil, fmt.Errorf("command of type %d: %w", k, err)
	}
	return e, nil
}

func (e *Entry) kind() (kind, error) {
	k, kinds := kindTick, 0
	if len(e.Txns) > 0 {
		k, kinds = kindTxns, kinds+1
	}
	if len(e.Reports) > 0 {
		k, kinds = kindAdvertise, kinds+1
	}
	if e.Behaviour > 0 {
		k, kinds = kindBehaviour, kinds+1
	}
	if kinds > 1 {
		return 0, fmt.Errorf("%w: more than one kind of command in one entry", ErrInvalid)
	}
	return k, nil
}

func seal(k kind, flags byte, body []byte) []byte {
	b := protowire.AppendVarint([]byte{entryFormat}, uint64(k))
	b = append(b, flags)
	crc := crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, body)
	b = binary.LittleEndian.AppendUint32(b, crc)
	return append(b, body...)
}

func open(b []byte) (k kind, body []byte, err error) {
	if len(b) > MaxEntryBytes {
		return 0, nil, fmt.Errorf("%w: entry has %d bytes, the limit is %d", ErrTooLarge, len(b), MaxEntryBytes)
	}
	if len(b) == 0 {
		return 0, nil, fmt.Errorf("%w: empty entry", ErrCorrupt)
	}
	if b[0] != entryFormat {
		return 0, nil, fmt.Errorf("%w: entry format %d, want %d", ErrUnknownCommand, b[0], entryFormat)
	}
	v, n := protowire.ConsumeVarint(b[1:])
	if n < 0 || n != protowire.SizeVarint(v) || len(b) < 1+n+1+4 {
		return 0, nil, fmt.Errorf("%w: entry header is cut off", ErrCorrupt)
	}
	header, sum, body := b[:1+n+1], b[1+n+1:1+n+5], b[1+n+5:]
	if crc32.Update(crc32.Checksum(header, castagnoli), castagnoli, body) != binary.LittleEndian.Uint32(sum) {
		return 0, nil, fmt.Errorf("%w: checksum of the entry does not match", ErrCorrupt)
	}
	flags := header[1+n]
	if flags&^flagIgnorable != 0 {
		return 0, nil, fmt.Errorf("%w: flags %#x", ErrUnknownCommand, flags)
	}
	k = kind(v)
	if k < kindTick || k > kindBehaviour {
		if flags&flagIgnorable != 0 || planted.Bug == planted.UnknownCommandIgnored {
			return 0, nil, fmt.Errorf("type %d: %w", k, ErrIgnorable)
		}
		return 0, nil, fmt.Errorf("%w: type %d", ErrUnknownCommand, k)
	}
	return k, body, nil
}

func appendBody(b []byte, k kind, e *Entry) []byte {
	b = putInt(b, 1, int64(e.Time))
	switch k {
	case kindTxns:
		b = putList(b, 2, e.Txns, appendTxn)
	case kindAdvertise:
		b = putList(b, 2, e.Reports, appendReport)
	case kindBehaviour:
		b = putUint(b, 2, uint64(e.Behaviour))
	}
	return b
}

func parseBody(k kind, b []byte) (*Entry, error) {
	e := &Entry{}
	d := decoder{rest: b}
	for d.next(repeated(2)) {
		switch {
		case d.num == 1:
			if e.Time = d.millis(); e.Time < 0 || e.Time > MaxMillis {
				d.fail(ErrInvalid, "time %d is out of range", e.Time)
			}
		case d.num == 2 && k == kindTxns:
			e.Txns = more(&d, e.Txns, MaxCommands, DecodeTxn)
		case d.num == 2 && k == kindAdvertise:
			e.Reports = more(&d, e.Reports, MaxCommands, DecodeReport)
		case d.num == 2 && k == kindBehaviour && e.Behaviour == 0:
			e.Behaviour = uint32(d.upTo(1<<32 - 1))
		default:
			d.unknown()
		}
	}
	if d.err != nil {
		return nil, d.err
	}
	if got, err := e.kind(); err != nil || got != k {
		return nil, fmt.Errorf("%w: body without a command", ErrCorrupt)
	}
	return e, nil
}
