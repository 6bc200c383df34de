package cluster

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// A frame of the internal RPC, all integers big endian:
//
//	length    uint32  of everything after it, at most maxFrameBytes
//	version   uint8   rpcVersion
//	what      uint8   request: method; answer: 0x80
//	code      uint8   answer: code; request: 0
//	id        uint64  of the request, chosen by the caller, unique on the connection
//	millis    uint32  request: time the caller will wait; answer: 0
//	payload
const (
	rpcVersion    = 1
	frameHead     = 15
	answerFlag    = 0x80
	maxCallMillis = 10 * 60 * 1000
)

// method of the internal RPC. Numbers are shared between versions: append only.
type method uint8

const (
	methodSubmitTxn    method = 1
	methodSubmitReport method = 2
	methodReadIndex    method = 3
	methodStatus       method = 4
	methodJoin         method = 5
	methodOffer        method = 6
	methodTransfer     method = 7
	methodRemovePeer   method = 8
	methodStop         method = 9
)

type frame struct {
	what    uint8
	code    code
	id      uint64
	timeout time.Duration
	payload []byte
}

func writeFrame(w io.Writer, f *frame) error {
	size := frameHead + len(f.payload)
	if size > maxFrameBytes {
		return fmt.Errorf("%w: frame of %d bytes, the limit is %d", ErrTooLarge, size, maxFrameBytes)
	}
	b := make([]byte, 0, 4+size)
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	b = append(b, rpcVersion, f.what, byte(f.code))
	b = binary.BigEndian.AppendUint64(b, f.id)
	millis := min(max(f.timeout.Milliseconds(), 0), maxCallMillis)
	b = binary.BigEndian.AppendUint32(b, uint32(millis))
	_, err := w.Write(append(b, f.payload...))
	return err
}

func readFrame(r io.Reader) (*frame, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size < frameHead || size > maxFrameBytes {
		return nil, fmt.Errorf("%w: frame says %d bytes", ErrInvalid, size)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	if b[0] != rpcVersion {
		return nil, fmt.Errorf("%w: RPC version %d, this node speaks %d", ErrInvalid, b[0], rpcVersion)
	}
	return &frame{
		what: b[1], code: code(b[2]), id: binary.BigEndian.Uint64(b[3:]),
		timeout: time.Duration(binary.BigEndian.Uint32(b[11:])) * time.Millisecond,
		payload: b[frameHead:],
	}, nil
}
