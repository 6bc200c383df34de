// Package history is what a run saw of the exchange and whether it can be true: every change in
// the order of its revision, as several watchers of several nodes received it, and everything
// that clients were told, held against it.
package history

import (
	"github.com/bourse-dev/bourse/test/model"
)

// Kind of a row.
type Kind int

// The kinds that are followed.
const (
	Reservations Kind = iota
	Advertisements
	kinds
)

func (k Kind) String() string { return [...]string{"reservations", "clusteradvertisements"}[k] }

// Row is one object as it was from its revision on. Rows compare with ==.
type Row struct {
	Kind Kind
	Key  string // namespace/name, or name
	Rev  uint64
	Gone bool
	Body any // Reservation or Advertisement; of one that is gone: as it last was
}

// Amounts of the resources that chaos deals in.
type Amounts struct{ CPUMilli, MemoryBytes int64 }

func (a Amounts) model() model.Amounts {
	return model.Amounts{"cpu": a.CPUMilli, "memory": a.MemoryBytes}
}

// Reservation is what is compared of a reservation.
type Reservation struct {
	UID        string
	Op         string // the client operation that wrote the body last
	Generation int64
	Asked      Amounts
	Duration   string
	Phase      string
	Target     string
	Fence      uint64
	ReservedAt int64 // Unix microseconds
	ExpiresAt  int64 // Unix microseconds; 0: when it is deleted
	EndedAt    int64 // Unix seconds, of a final phase
	Reason     string
	PartOf     string // the uid of the batch or split reservation that it is a part of
	Bound      bool   // it is held with the other parts or not at all
	Parts      int    // of the atomic batch that it is a part of
	Pieces     int    // of a split reservation: they hold, it does not
}

// The phases of a reservation.
const (
	Pending  = "Pending"
	Reserved = "Reserved"
	Released = "Released"
	Failed   = "Failed"
)

// Advertisement is what is compared of an advertisement.
type Advertisement struct {
	UID         string
	Op          string
	Cluster     string
	Phase       string
	Epoch       int64
	Allocatable Amounts
	Allocated   Amounts
	KeepBack    Amounts
	Reserved    Amounts
	Withdrawn   bool
	Closed      bool // takes no hold
}
