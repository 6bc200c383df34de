package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"
)

// FuzzFrame: a frame that is read is written as the bytes it was read from; a length that lies takes
// no more memory than the limit.
func FuzzFrame(f *testing.F) {
	var b bytes.Buffer
	if err := writeFrame(&b, &frame{what: 1, id: 7, timeout: 1e9, payload: []byte("txn")}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		got, err := readFrame(r)
		if err != nil {
			if !errors.Is(err, ErrInvalid) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if got.timeout.Milliseconds() > maxCallMillis {
			return // no caller of ours asks so long; it is bounded where it is written
		}
		var again bytes.Buffer
		if err := writeFrame(&again, got); err != nil || !bytes.Equal(again.Bytes(), data[:len(data)-r.Len()]) {
			t.Fatalf("%x is written %x (%v)", data, again.Bytes(), err)
		}
	})
}

// FuzzHello: what is read is written so that it reads the same.
func FuzzHello(f *testing.F) {
	var b bytes.Buffer
	if err := writeHello(&b, kindRPC, hello{ClusterID: "x", From: "n1", UUID: "u", To: "n2"}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{helloMagic, helloVersion, 1, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		kind, h, err := readHello(bytes.NewReader(data))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := writeHello(&again, kind, h); err != nil {
			return // escapes may make it longer than the limit
		}
		if k, got, err := readHello(&again); err != nil || k != kind || got != h {
			t.Fatalf("%+v is read %+v (%v)", h, got, err)
		}
	})
}

// FuzzMessages: no payload of the rare calls, no row and no gossip makes a node panic.
func FuzzMessages(f *testing.F) {
	for _, v := range []any{
		offer{},
		joinRequest{},
		nodeRequest{},
		stopRequest{},
		selfReport{NodeID: "n1", Hashes: []hashMark{{1, 2, "h"}}},
		NodeRecord{UUID: "u", RaftAddress: "127.0.0.1:1"},
		gossipMeta{NodeID: "n1", Started: 1},
	} {
		b, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("12345678"))
	f.Fuzz(func(t *testing.T, data []byte) {
		decodes(t, data, func(offer) {})
		decodes(t, data, func(joinRequest) {})
		decodes(t, data, func(nodeRequest) {})
		decodes(t, data, func(stopRequest) {})
		if r, err := decodeRevision(data); err == nil && !bytes.Equal(encodeRevision(r), data) {
			t.Fatalf("revision %d of %x", r, data)
		}
		if record, err := decodeNodeRecord(data); err == nil {
			b, err := json.Marshal(record)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := decodeNodeRecord(b); err != nil || again != record {
				t.Fatalf("%+v is read %+v (%v)", record, again, err)
			}
		}
		g := &gossip{meta: gossipMeta{NodeID: "me"}, logger: hclog.NewNullLogger(), members: map[string]gossipMeta{}, changed: make(chan struct{}, 1), left: func(string) {}}
		member := &memberlist.Node{Name: "other/1", Meta: data}
		g.NotifyJoin(member)
		for id := range g.peers() {
			if id == "" || id == "me" {
				t.Fatalf("peer %q", id)
			}
		}
		g.NotifyLeave(member)
		if len(g.peers()) != 0 {
			t.Fatal("a member that left is a peer")
		}
	})
}

// decodes runs a handler of that question on the payload: it is asked, or the caller is told why not.
func decodes[Q any](t *testing.T, data []byte, asked func(Q)) {
	_, err := jsonHandler(func(_ context.Context, _ hello, q Q) (nothing, error) {
		asked(q)
		return nothing{}, nil
	})(context.Background(), hello{}, data)
	if err != nil && !errors.Is(err, ErrInvalid) {
		t.Fatalf("untyped error %v", err)
	}
}
