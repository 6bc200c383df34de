package fsm

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bourse-dev/bourse/allocation"
)

// crowded is a state with that many accounts, each with facts and room, and ten times as
// many rows that hold one core each.
func crowded(b *testing.B, accounts int) *State {
	b.Helper()
	s := New()
	apply := func(e *Entry) {
		data, err := EncodeEntry(e)
		require.NoError(b, err)
		out := mustApply(b, s, data)
		for _, r := range out.Results {
			require.Nil(b, r.Refusal)
		}
		s = out.State
	}
	body := bytes.Repeat([]byte("x"), 600)
	for first := 0; first < accounts; first += 100 {
		var made, opened, facts Entry
		for i := first; i < min(accounts, first+100); i++ {
			key := fmt.Sprintf("clusteradvertisements/c%d-adv", i)
			made.Txns = append(made.Txns, Txn{Writes: []Write{{Key: key, Body: body, Terms: &Terms{}}}})
			opened.Reports = append(opened.Reports, Report{Account: key, Session: [16]byte{1}, Open: true})
			facts.Reports = append(facts.Reports, Report{Account: key, Session: [16]byte{1}, Epoch: 1, Sequence: 1, Facts: AccountFacts{
				Allocatable: benchAmounts(1 << 16), Allocated: benchAmounts(7), LargestFree: benchAmounts(64),
			}})
		}
		apply(&made)
		apply(&opened)
		apply(&facts)
	}
	for first := 0; first < accounts*10; first += 100 {
		var e Entry
		for i := first; i < min(accounts*10, first+100); i++ {
			e.Txns = append(e.Txns, benchGrant(i, i%accounts, s.Revision(), body))
		}
		apply(&e)
	}
	return s
}

func benchAmounts(n int64) allocation.Amounts {
	return allocation.NewAmounts(allocation.Amount{Resource: allocation.CPU, Value: n * 1000}, allocation.Amount{Resource: allocation.Memory, Value: n << 30})
}

func benchGrant(i, account int, seen Revision, body []byte) Txn {
	key := fmt.Sprintf("reservations/rome/r%07d", i)
	return Txn{
		ID:     RequestID{Seen: seen, Random: uint64(i)*0x9E3779B97F4A7C15 + 1},
		Guards: []Guard{GuardAbsent(key)},
		Writes: []Write{{Key: key, Body: body, SpecChanged: true, Ledger: &Ledger{
			Phase: 2, Target: "c1", GrantedAt: 1_700_000_000_000, ExpiresAt: 1_700_007_200_000, PriceNano: 5e8, Decision: bytes.Repeat([]byte("d"), 400),
		}}},
		Moves: []Move{{Op: MoveHold, Account: fmt.Sprintf("clusteradvertisements/c%d-adv", account), Holder: key, Amounts: benchAmounts(1)}},
	}
}

func BenchmarkApplyGrants(b *testing.B) {
	const accounts = 10_000
	s := crowded(b, accounts)
	body := bytes.Repeat([]byte("x"), 600)
	for _, txns := range []int{1, 64} {
		b.Run(fmt.Sprintf("txns=%d/accounts=%d", txns, accounts), func(b *testing.B) {
			var e Entry
			for i := range txns {
				e.Txns = append(e.Txns, benchGrant(1_000_000+i, i*131%accounts, s.Revision(), body))
			}
			data, err := EncodeEntry(&e)
			require.NoError(b, err)
			for _, r := range mustApply(b, s, data).Results {
				require.Nil(b, r.Refusal)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				mustApply(b, s, data)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(txns), "ns/txn")
		})
	}
}

func BenchmarkSnapshot(b *testing.B) {
	s := crowded(b, 10_000)
	data := snapshotOf(b, s)
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for range b.N {
			require.NoError(b, WriteSnapshot(io.Discard, s))
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for range b.N {
			_, err := ReadSnapshot(bytes.NewReader(data))
			require.NoError(b, err)
		}
	})
	b.Run("fullHash", func(b *testing.B) {
		for range b.N {
			require.Equal(b, s.Hash(), s.FullHash())
		}
	})
}
