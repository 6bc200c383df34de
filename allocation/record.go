package allocation

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// ErrRecord is a stored decision that can't be read.
var ErrRecord = errors.New("decision record is malformed")

// Field numbers of a record. Stored: append only.
const (
	recordRevision   = 1
	recordResWeight  = 2
	recordCostWeight = 3
	recordConsidered = 4
	recordFeasible   = 5
	recordExcluded   = 6 // pairs of varints: reason, clusters
	recordResource   = 7
	recordCandidate  = 8

	resourceName      = 1
	resourceRequested = 2
	resourceChunk     = 3

	candidateID            = 1
	candidateReason        = 2 // absent: feasible
	candidatePrice         = 3 // plus 1; absent: Unpriced
	candidateResourceScore = 4
	candidateCostScore     = 5
	candidateAvailable     = 6 // varints, one for each recordResource
	candidateLargestFree   = 7 // the same, Fragmented only
)

// EncodeDecision appends the decision as it is kept in the ledger: at most MaxRecordBytes, whatever the
// clusters and resources are called. Kept always: revision, policy, all counts, the winner or the
// nearest miss. Left out as need be, in this order: resources (and their figures) beyond
// recordResources or recordNamesBytes, cpu and memory first, then what the misses lack; then
// candidates from the end, of misses and of feasible ones in turn. The score is not stored: it follows.
func EncodeDecision(dst []byte, d *Decision, revision uint64) []byte {
	head := appendUint(nil, recordRevision, revision)
	head = appendUint(head, recordResWeight, uint64(d.Policy.ResourceWeight))
	head = appendUint(head, recordCostWeight, uint64(d.Policy.CostWeight))
	head = appendUint(head, recordConsidered, uint64(d.Considered))
	head = appendUint(head, recordFeasible, uint64(d.Feasible))
	var excluded []byte
	for reason, n := range d.Excluded {
		if n > 0 {
			excluded = protowire.AppendVarint(protowire.AppendVarint(excluded, uint64(reason)), uint64(n))
		}
	}
	head = appendBytes(head, recordExcluded, excluded)
	shown := d.recordedResources()
	for _, name := range shown {
		body := appendBytes(nil, resourceName, []byte(name))
		body = appendUint(body, resourceRequested, uint64(d.requested.Get(name)))
		body = appendUint(body, resourceChunk, uint64(d.chunk.Get(name)))
		head = appendBytes(head, recordResource, body)
	}
	ranked, missed := d.recordedCandidates(shown, MaxRecordBytes-len(head))
	dst = append(dst, head...)
	for _, c := range append(ranked, missed...) {
		dst = append(dst, c...)
	}
	return dst
}

// recordedCandidates encodes as many as there is room for: the best, the nearest miss, the second best...
func (d *Decision) recordedCandidates(shown []string, room int) (ranked, missed [][]byte) {
	for i := range Listed {
		if i < d.ranked {
			c := appendBytes(nil, recordCandidate, d.encodeCandidate(&d.rankedList[i], shown))
			if room -= len(c); room < 0 {
				break
			}
			ranked = append(ranked, c)
		}
		if i < d.missed {
			c := appendBytes(nil, recordCandidate, d.encodeCandidate(&d.missedList[i], shown))
			if room -= len(c); room < 0 {
				break
			}
			missed = append(missed, c)
		}
	}
	return ranked, missed
}

func (d *Decision) encodeCandidate(c *Candidate, shown []string) []byte {
	b := appendBytes(nil, candidateID, []byte(c.ClusterID))
	b = appendUint(b, candidateReason, uint64(c.Reason))
	b = appendUint(b, candidatePrice, uint64(c.PriceNano)+1) // Unpriced + 1 = 0
	b = appendUint(b, candidateResourceScore, uint64(c.ResourceScore))
	b = appendUint(b, candidateCostScore, uint64(c.CostScore))
	b = appendBytes(b, candidateAvailable, figures(shown, d.requested, &c.Available))
	if c.Reason == ReasonFragmented {
		b = appendBytes(b, candidateLargestFree, figures(shown, d.chunk, &c.LargestFree))
	}
	return b
}

// figures are the values of the shown resources; 0 where the vector does not name one.
func figures(shown []string, order Amounts, values *[MaxResources]int64) []byte {
	var b []byte
	for _, name := range shown {
		var v int64
		if i := order.index(name); i >= 0 && i < MaxResources {
			v = values[i]
		}
		b = protowire.AppendVarint(b, uint64(v))
	}
	return b
}

// recordedResources chooses whose figures are kept.
func (d *Decision) recordedResources() []string {
	wanted := []string{CPU, Memory}
	for i := range d.Nearest() {
		wanted = append(wanted, d.lacking(&d.missedList[i])...)
	}
	for _, a := range d.requested {
		wanted = append(wanted, a.Resource)
	}
	room := recordNamesBytes
	var shown []string
	taken := map[string]bool{}
	for _, name := range wanted {
		asked := d.requested.index(name) >= 0 || d.chunk.index(name) >= 0
		if !asked || taken[name] || len(name) > room || len(shown) == recordResources {
			continue
		}
		taken[name] = true
		room -= len(name)
		shown = append(shown, name)
	}
	slices.Sort(shown)
	return shown
}

// lacking names what a miss has too little of.
func (d *Decision) lacking(c *Candidate) []string {
	want, have := d.requested, &c.Available
	switch c.Reason {
	case ReasonInsufficient:
	case ReasonFragmented:
		want, have = d.chunk, &c.LargestFree
	default:
		return nil
	}
	var names []string
	for i := range min(len(want), MaxResources) {
		if have[i] < want[i].Value {
			names = append(names, want[i].Resource)
		}
	}
	return names
}

// appendUint leaves zero out.
func appendUint(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

// appendBytes leaves nothing out where there is nothing.
func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

// DecodeDecision reads a record as the API shows it. An empty record is an empty Decision.
func DecodeDecision(record []byte) (broker.Decision, error) {
	var d Decision
	var shownRequested, shownChunk []Amount
	var candidates [][]byte
	var revision uint64
	err := eachField(record, func(field protowire.Number, n uint64, body []byte) error {
		switch field {
		case recordRevision:
			revision = n
		case recordResWeight:
			d.Policy.ResourceWeight = int64(n)
		case recordCostWeight:
			d.Policy.CostWeight = int64(n)
		case recordConsidered:
			d.Considered = int(n)
		case recordFeasible:
			d.Feasible = int(n)
		case recordExcluded:
			return decodeExcluded(body, &d.Excluded)
		case recordResource:
			requested, chunk, err := decodeResource(body)
			shownRequested, shownChunk = append(shownRequested, requested), append(shownChunk, chunk)
			return err
		case recordCandidate:
			candidates = append(candidates, body)
		}
		return nil
	})
	if err != nil || len(record) == 0 {
		return broker.Decision{}, err
	}
	if err := d.Policy.Validate(); err != nil {
		return broker.Decision{}, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	if len(shownRequested) > MaxResources {
		return broker.Decision{}, fmt.Errorf("%w: %d resources", ErrRecord, len(shownRequested))
	}
	out := broker.Decision{Revision: int64(revision), Policy: d.Policy.String(), Counts: d.counts()}
	for _, body := range candidates {
		c, err := decodeCandidate(body, d.Policy, len(shownRequested))
		if err != nil {
			return broker.Decision{}, err
		}
		out.Candidates = append(out.Candidates, c.object(shownRequested, shownChunk))
	}
	return out, nil
}

func decodeExcluded(body []byte, excluded *[reasonCount]int) error {
	for len(body) > 0 {
		reason, n := protowire.ConsumeVarint(body)
		if n < 0 {
			return fmt.Errorf("%w: counts", ErrRecord)
		}
		count, m := protowire.ConsumeVarint(body[n:])
		if m < 0 {
			return fmt.Errorf("%w: counts", ErrRecord)
		}
		if reason < reasonCount { // else a newer version's
			excluded[reason] = int(count)
		}
		body = body[n+m:]
	}
	return nil
}

// decodeResource returns a name's requested and chunk amounts; the caller keeps both lists in one order.
func decodeResource(body []byte) (requested, chunk Amount, err error) {
	err = eachField(body, func(field protowire.Number, n uint64, text []byte) error {
		switch field {
		case resourceName:
			requested.Resource, chunk.Resource = string(text), string(text)
		case resourceRequested:
			requested.Value = int64(n)
		case resourceChunk:
			chunk.Value = int64(n)
		}
		return nil
	})
	return requested, chunk, err
}

func decodeCandidate(body []byte, policy Policy, resources int) (*Candidate, error) {
	c := &Candidate{PriceNano: Unpriced}
	err := eachField(body, func(field protowire.Number, n uint64, text []byte) error {
		switch field {
		case candidateID:
			c.ClusterID = string(text)
		case candidateReason:
			c.Reason = Reason(min(n, reasonCount))
		case candidatePrice:
			c.PriceNano = int64(n - 1)
		case candidateResourceScore:
			c.ResourceScore = int64(n)
		case candidateCostScore:
			c.CostScore = int64(n)
		case candidateAvailable:
			return decodeFigures(text, resources, &c.Available)
		case candidateLargestFree:
			return decodeFigures(text, resources, &c.LargestFree)
		}
		return nil
	})
	if c.Feasible() {
		c.Score = policy.score(c.ResourceScore, c.CostScore)
	}
	return c, err
}

func decodeFigures(body []byte, resources int, into *[MaxResources]int64) error {
	for i := range resources {
		v, n := protowire.ConsumeVarint(body)
		if n < 0 {
			return fmt.Errorf("%w: figures", ErrRecord)
		}
		into[i], body = int64(v), body[n:]
	}
	return nil
}

// eachField walks a message; fields of an unknown number are the visitor's to ignore.
func eachField(b []byte, visit func(field protowire.Number, n uint64, body []byte) error) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", ErrRecord, protowire.ParseError(n))
		}
		b = b[n:]
		var value uint64
		var body []byte
		switch kind {
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			body, n = protowire.ConsumeBytes(b)
		default:
			return fmt.Errorf("%w: field %d has type %d", ErrRecord, field, kind)
		}
		if n < 0 {
			return fmt.Errorf("%w: %w", ErrRecord, protowire.ParseError(n))
		}
		b = b[n:]
		if err := visit(field, value, body); err != nil {
			return err
		}
	}
	return nil
}
