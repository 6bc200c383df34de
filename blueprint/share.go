package blueprint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// share is one slice's row: what of a blueprint's slice is on one cluster.
type share struct {
	row    *fsm.Row
	object *broker.Slice // shared: not to be changed
	record record
	ask    allocation.Amounts // of one instance, as the agent is told
}

// record is what the room knows of a share. It lies in the ledger, which no user writes; the spec in
// the body is what the agent is told, and can be put right from it. Frozen: only ever add fields.
type record struct {
	Blueprint string `json:"b"`
	UID       string `json:"u"`
	Slice     string `json:"s"`
	Cluster   string `json:"c"`
	Instances int    `json:"n,omitempty"`
	Surge     int    `json:"g,omitempty"` // held beside, while a version changes
	Failure   string `json:"f,omitempty"` // what it failed with before it was tried again, until it is ready
}

// shareOf reads a row. A slice that the room did not write belongs to no blueprint.
func shareOf(row *fsm.Row) *share {
	s := &share{row: row, object: store.SliceOf(row)}
	if s.object == nil {
		s.object = &broker.Slice{}
	}
	// What can't be read is of no size: it is put right.
	s.ask, _ = allocation.AmountsOf(s.object.Spec.Resources, true)
	if row.Ledger == nil || json.Unmarshal(row.Ledger.Decision, &s.record) != nil {
		s.record = record{Slice: s.object.Spec.Slice, Cluster: s.object.Spec.ClusterID}
	}
	return s
}

func (r *record) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic("blueprint: strings and numbers can't be encoded: " + err.Error())
	}
	return b
}

// owner names one blueprint, not another of its name.
func (s *share) owner() string {
	namespace, _, _ := strings.Cut(strings.TrimPrefix(s.row.Key, broker.SlicesPrefix), "/")
	return ownerKey(broker.BlueprintKey(namespace, s.record.Blueprint), s.record.UID)
}

func ownerKey(blueprintKey, uid string) string { return blueprintKey + "#" + uid }

// blueprintKeyOf is the row key of an owner.
func blueprintKeyOf(owner string) string {
	key, _, _ := strings.Cut(owner, "#")
	return key
}

func (s *share) status() *broker.SliceStatus { return &s.object.Status }

// observed: the agent speaks of the present spec.
func (s *share) observed() bool {
	return s.status().ObservedGeneration == s.object.Generation && s.status().State != ""
}

func (s *share) in(state broker.SliceState) bool { return s.observed() && s.status().State == state }

// settled: what is asked for runs.
func (s *share) settled() bool {
	return s.in(broker.SliceActive) && s.status().ReadyInstances >= s.object.Spec.Instances
}

// failure is what the share failed with, until it is ready: no more and no less while it is tried again.
func (s *share) failure() string {
	switch {
	case s.in(broker.SliceFailed):
		return broker.Clip(s.status().Message, maxFailureBytes)
	case s.settled():
		return ""
	}
	return s.record.Failure
}

func (s *share) leaving() bool {
	return s.object.Spec.Command == broker.SliceDeactivate || s.object.Spec.Command == broker.SliceUnload
}

func (s *share) has(condition string) bool {
	return s.observed() && meta.IsStatusConditionTrue(s.status().Conditions, condition)
}

// refuses: the agent does not run this image here, it said last. Nil is a share that is not there.
func (s *share) refuses(image string) bool {
	if s == nil || s.object.Spec.Image != image {
		return false
	}
	kept := s.record.Instances == 0 && s.object.Spec.Command == broker.SliceLoad
	return (kept || s.observed()) && meta.IsStatusConditionTrue(s.status().Conditions, broker.ConditionRefused)
}

// held is what the share holds; nil where it holds nothing.
func (s *share) held() allocation.Amounts {
	if s.row.Ledger == nil || len(s.row.Ledger.Holds) == 0 {
		return nil
	}
	return s.row.Ledger.Holds[0].Amounts
}

// SliceName is <blueprint>-<slice>-<cluster>-<hash>: the hash alone tells slices apart, so what is cut
// for length is not missed.
func SliceName(namespace, blueprint, uid, slice, cluster string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{namespace, blueprint, uid, slice, cluster}, "\x00")))
	name := blueprint + "-" + slice + "-" + cluster
	name = strings.TrimRight(name[:min(len(name), maxSliceName-hashBytes-1)], ".-")
	return name + "-" + hex.EncodeToString(sum[:])[:hashBytes]
}
