package fsm

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// The encoding is the protobuf wire format, written by hand and canonical: fields in
// ascending order, zero values left out, varints minimal. The decoder refuses everything
// else, so that what decodes encodes to the same bytes again: the state hash and the
// snapshots depend on that.

func putUint(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

func putInt(b []byte, num protowire.Number, v int64) []byte {
	return putUint(b, num, protowire.EncodeZigZag(v))
}

func putBool(b []byte, num protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return putUint(b, num, 1)
}

func putText(b []byte, num protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), v)
}

// putBytes keeps nil and empty apart: nil is left out.
func putBytes(b []byte, num protowire.Number, v []byte) []byte {
	if v == nil {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
}

// putMessage appends a nested message: encoded in place, then moved to make room for its length.
func putMessage[T any](b []byte, num protowire.Number, v *T, put func([]byte, *T) []byte) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	start := len(b)
	b = put(b, v)
	size := len(b) - start
	var prefix [10]byte
	length := protowire.AppendVarint(prefix[:0], uint64(size))
	b = append(b, length...)
	copy(b[start+len(length):], b[start:start+size])
	copy(b[start:], length)
	return b
}

func putList[T any](b []byte, num protowire.Number, list []T, put func([]byte, *T) []byte) []byte {
	for i := range list {
		b = putMessage(b, num, &list[i], put)
	}
	return b
}

// decoder walks the fields of one message. After next says true, exactly one of its getters
// must be called for the field. The first fault ends the walk.
type decoder struct {
	rest []byte
	num  protowire.Number
	typ  protowire.Type
	err  error
}

// repeated marks the fields that may come more than once.
func repeated(nums ...protowire.Number) (mask uint32) {
	for _, n := range nums {
		mask |= 1 << n
	}
	return mask
}

func (d *decoder) next(repeated uint32) bool {
	if d.err != nil || len(d.rest) == 0 {
		return false
	}
	num, typ, n := protowire.ConsumeTag(d.rest)
	switch {
	case n < 0:
		return d.fail(ErrCorrupt, "tag: %v", protowire.ParseError(n))
	case n != protowire.SizeTag(num):
		return d.fail(ErrCorrupt, "tag of field %d is not minimal", num)
	case num < d.num:
		return d.fail(ErrCorrupt, "field %d after field %d", num, d.num)
	case num == d.num && (num > 31 || repeated&(1<<num) == 0):
		return d.fail(ErrCorrupt, "field %d twice", num)
	}
	d.num, d.typ, d.rest = num, typ, d.rest[n:]
	return true
}

func (d *decoder) fail(kind error, format string, args ...any) bool {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", kind, fmt.Sprintf(format, args...))
	}
	return false
}

func (d *decoder) unknown() { d.fail(ErrUnknownCommand, "field %d", d.num) }

func (d *decoder) wants(typ protowire.Type) bool {
	if d.err == nil && d.typ != typ {
		d.fail(ErrCorrupt, "field %d has wire type %d, want %d", d.num, d.typ, typ)
	}
	return d.err == nil
}

func (d *decoder) uint() uint64 {
	if !d.wants(protowire.VarintType) {
		return 0
	}
	v, n := protowire.ConsumeVarint(d.rest)
	switch {
	case n < 0:
		d.fail(ErrCorrupt, "field %d: %v", d.num, protowire.ParseError(n))
		return 0
	case v == 0 || n != protowire.SizeVarint(v):
		d.fail(ErrCorrupt, "field %d is not minimal", d.num)
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// upTo reads a number of a range; one above it was written by a newer version.
func (d *decoder) upTo(limit uint64) uint64 {
	v := d.uint()
	if d.err == nil && v > limit {
		d.fail(ErrUnknownCommand, "field %d is %d, the greatest known is %d", d.num, v, limit)
	}
	return v
}

func (d *decoder) int() int64 { return protowire.DecodeZigZag(d.uint()) }

func (d *decoder) millis() Millis { return Millis(d.int()) }

func (d *decoder) int32() int32 {
	v := d.int()
	if v < math.MinInt32 || v > math.MaxInt32 {
		d.fail(ErrCorrupt, "field %d is %d, beyond 32 bits", d.num, v)
	}
	return int32(v)
}

func (d *decoder) bool() bool {
	v := d.uint()
	if d.err == nil && v != 1 {
		d.fail(ErrCorrupt, "field %d is %d, want a bool", d.num, v)
	}
	return v == 1
}

// message returns the bytes of a nested message; they belong to the input.
func (d *decoder) message() []byte {
	if !d.wants(protowire.BytesType) {
		return nil
	}
	size, n := protowire.ConsumeVarint(d.rest)
	switch {
	case n < 0:
		d.fail(ErrCorrupt, "field %d: %v", d.num, protowire.ParseError(n))
		return nil
	case n != protowire.SizeVarint(size):
		d.fail(ErrCorrupt, "length of field %d is not minimal", d.num)
		return nil
	case size > uint64(len(d.rest)-n):
		d.fail(ErrCorrupt, "field %d is cut off", d.num)
		return nil
	}
	v := d.rest[n : n+int(size) : n+int(size)]
	d.rest = d.rest[n+int(size):]
	return v
}

// bytes returns a copy, never nil: a small body must not keep a whole entry alive.
func (d *decoder) bytes(limit int) []byte {
	v := d.message()
	if len(v) > limit {
		d.fail(ErrTooLarge, "field %d has %d bytes, the limit is %d", d.num, len(v), limit)
		return nil
	}
	return append(make([]byte, 0, len(v)), v...)
}

func (d *decoder) text(limit int) string {
	v := d.message()
	switch {
	case d.err != nil:
		return ""
	case len(v) == 0:
		d.fail(ErrCorrupt, "field %d is empty", d.num)
		return ""
	case len(v) > limit:
		d.fail(ErrTooLarge, "field %d has %d bytes, the limit is %d", d.num, len(v), limit)
		return ""
	}
	return string(v)
}

// one parses a nested message that comes at most once.
func one[T any](d *decoder, parse func([]byte) (T, error)) *T {
	raw := d.message()
	if d.err != nil {
		return nil
	}
	v, err := parse(raw)
	if err != nil {
		d.err = fmt.Errorf("field %d: %w", d.num, err)
		return nil
	}
	return &v
}

// more parses one element of a list.
func more[T any](d *decoder, list []T, limit int, parse func([]byte) (T, error)) []T {
	if len(list) >= limit {
		d.fail(ErrTooLarge, "field %d comes more than %d times", d.num, limit)
		return list
	}
	v := one(d, parse)
	if v == nil {
		return list
	}
	return append(list, *v)
}
