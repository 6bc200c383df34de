package server_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/bourse-dev/bourse/server"
)

// The cost of the HTTP side alone: TLS, authentication, the chain, the registry and storage, with
// decisions, and without Raft or a disk.
func BenchmarkCreateToReserved(b *testing.B) {
	for _, clients := range []int{1, 32} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			x := start(b)
			x.advertise("berlin", 1<<30)
			c := x.client(server.GroupRequester + "rome")
			var n atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(clients)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					c.must(http.StatusCreated, "POST", rome, reservationBody(fmt.Sprintf("r%d", n.Add(1)), "rome", `"duration":"2h"`))
				}
			})
		})
	}
}

func BenchmarkGet(b *testing.B) {
	x := start(b)
	x.advertise("berlin", 1<<30)
	c := x.client(server.GroupRequester + "rome")
	c.must(http.StatusCreated, "POST", rome, reservationBody("r", "rome", ""))
	b.ReportAllocs()
	for b.Loop() {
		c.must(http.StatusOK, "GET", rome+"/r", "")
	}
}
