package v1alpha1

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ReservationBatch asks for many reservations at once, or, where it is atomic, for all or none of
// them over several clusters. Its name is the idempotency key: creating it again with the same
// spec gives the same answer and reserves nothing twice.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ReservationBatch struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the request. It is immutable, but for a longer duration of an atomic one that is Reserved.
	Spec ReservationBatchSpec `json:"spec"`
	// Status is the exchange's answer.
	// +optional
	Status ReservationBatchStatus `json:"status,omitempty"`
}

// ReservationBatchSpec is a request for several reservations.
type ReservationBatchSpec struct {
	// Items are the reservations asked for: at most 1,000, or 128 of an atomic batch.
	// +listType=atomic
	Items []BatchItem `json:"items"`
	// Atomic: all items are reserved at the same moment, or none is. They are held, extended and ended as one.
	// +optional
	Atomic bool `json:"atomic,omitempty"`
	// Duration is how long an atomic batch is held from the grant on. Empty: until deleted. Items of
	// other batches state their own.
	// +optional
	Duration string `json:"duration,omitempty"`
	// Priority of an atomic batch: a higher number is served first. Items of other batches state their own.
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// TTLSecondsAfterFinished is how long the batch is kept once nothing of it holds or waits. Default a day.
	// +optional
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// BatchItem is one reservation of a batch.
type BatchItem struct {
	// Name of the item; the reservation is called <batch>-<name>.
	Name string `json:"name"`
	// Spec of the reservation.
	Spec ReservationSpec `json:"spec"`
}

// BatchPhase is the state of a batch.
type BatchPhase string

// The phases of a batch. Released and Failed are final.
const (
	// BatchPending: an item is undecided, or waits for capacity.
	BatchPending BatchPhase = "Pending"
	// BatchReserved: every item is Reserved.
	BatchReserved BatchPhase = "Reserved"
	// BatchPartial: some items are Reserved, and nothing waits. Never of an atomic batch.
	BatchPartial BatchPhase = "Partial"
	// BatchReleased: nothing is held any more.
	BatchReleased BatchPhase = "Released"
	// BatchFailed: nothing was ever held.
	BatchFailed BatchPhase = "Failed"
)

// ReservationBatchStatus is the exchange's answer to a batch.
type ReservationBatchStatus struct {
	// Phase is Pending, Reserved, Partial, Released or Failed.
	// +optional
	Phase BatchPhase `json:"phase,omitempty"`
	// Message says in words what became of the items, as "3/3 Reserved".
	// +optional
	Message string `json:"message,omitempty"`
	// Counts of the items by phase.
	// +optional
	Counts BatchCounts `json:"counts,omitempty"`
	// ReservedAt is when an atomic batch was granted.
	// +optional
	ReservedAt *metav1.MicroTime `json:"reservedAt,omitempty"`
	// ExpiresAt is when an atomic batch ends by itself; absent: when it is deleted.
	// +optional
	ExpiresAt *metav1.MicroTime `json:"expiresAt,omitempty"`
	// Results of the items that are decided.
	// +optional
	// +listType=map
	// +listMapKey=name
	Results []BatchResult `json:"results,omitempty"`
	// Conditions: Ready and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BatchCounts is how many items of a batch are in which phase.
type BatchCounts struct {
	// Items of the batch; those that no other figure counts are undecided.
	Items int32 `json:"items"`
	// Pending ones wait for capacity.
	// +optional
	Pending int32 `json:"pending,omitempty"`
	// Reserved ones hold capacity.
	// +optional
	Reserved int32 `json:"reserved,omitempty"`
	// Released ones held capacity.
	// +optional
	Released int32 `json:"released,omitempty"`
	// Failed ones were refused.
	// +optional
	Failed int32 `json:"failed,omitempty"`
}

// BatchResult is what became of one item.
type BatchResult struct {
	// Name of the item.
	Name string `json:"name"`
	// Phase of the item's reservation; Failed where none could be made.
	Phase ReservationPhase `json:"phase"`
	// TargetClusterID is the cluster whose capacity is held.
	// +optional
	TargetClusterID string `json:"targetClusterID,omitempty"`
	// Message says why an item is not Reserved, in short; the reservation has it in full.
	// +optional
	Message string `json:"message,omitempty"`
}

// ReservationBatchList is a list of batches.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ReservationBatchList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the batches.
	Items []ReservationBatch `json:"items"`
}

// Split lets a reservation be made of several pieces on different clusters. Each piece is a
// reservation of its own, <name>-1, <name>-2 and so on; all are granted, extended and ended as one.
type Split struct {
	// MaxPieces is how many pieces there may be: 2 to 8.
	MaxPieces int32 `json:"maxPieces"`
	// MinPiece is the least that a piece has of each resource that is named here. Resources that
	// it does not name are shared out in proportion.
	MinPiece corev1.ResourceList `json:"minPiece"`
}

// Piece is one piece of a split reservation.
type Piece struct {
	// Name of the piece's reservation.
	Name string `json:"name"`
	// TargetClusterID is the cluster that holds the piece.
	TargetClusterID string `json:"targetClusterID"`
	// RequestedResources of the piece.
	RequestedResources corev1.ResourceList `json:"requestedResources"`
}

// PartOf says what a reservation is a part of.
type PartOf struct {
	// Kind is ReservationBatch, or Reservation for a piece of a split one.
	Kind string `json:"kind"`
	// Name of that object, in the same namespace.
	Name string `json:"name"`
	// UID of that object.
	UID types.UID `json:"uid"`
	// Bound: it is extended, ended and deleted with the whole, not alone.
	// +optional
	Bound bool `json:"bound,omitempty"`
}

// The kinds that reservations are part of.
const (
	KindReservation      = "Reservation"
	KindReservationBatch = "ReservationBatch"
)

// LabelBatch is on the reservations of a batch, with its name.
const LabelBatch = GroupName + "/batch"

// ItemReservationName is the name of the reservation of a batch's item.
func ItemReservationName(batch, item string) string { return batch + "-" + item }

// PieceName is the name of the n-th piece of a split reservation, from 1.
func PieceName(reservation string, n int) string { return fmt.Sprintf("%s-%d", reservation, n) }

// BatchKey is the row key of a batch.
func BatchKey(namespace, name string) string { return BatchesPrefix + namespace + "/" + name }
