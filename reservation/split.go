package reservation

import (
	"fmt"
	"math/bits"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bourse-dev/bourse/allocation"
	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// byPrice ranks candidates for pieces: the cheapest first.
var byPrice = allocation.Policy{CostWeight: 1}

// placeSplit places a request in pieces, greedily: as much as fits on the cheapest cluster, then on
// the next. Where that leaves something over, all on one cluster is tried: what a request without
// spec.split would be granted, a split one is granted too.
func (p *placer) placeSplit(r *request) placed {
	candidates, record, why := p.cheapest(r)
	for _, cuts := range [][]cut{r.cut(candidates), p.uncut(r)} {
		if pieces, ok := p.placePieces(r, cuts); ok {
			return placed{request: r, ledger: r.grantedInPieces(p.now, pieces, record), pieces: pieces}
		}
	}
	if why == "" {
		why = fmt.Sprintf("%s does not fit in %d pieces on the %d cheapest clusters with room for one, nor on one",
			describeAmounts(r.ask.Amounts), r.object.Spec.Split.MaxPieces, len(candidates))
	}
	return placed{request: r, short: clip(why), ledger: r.notGranted(p.now, why, record)}
}

// candidate is a cluster with room for a piece.
type candidate struct {
	clusterID string
	available allocation.Amounts // of the request's resources
}

// cut is what one cluster is to hold of a request.
type cut struct {
	clusterID string
	amounts   allocation.Amounts
}

// share of a whole, of any integers that are not negative.
type share struct{ part, whole int64 }

func (s share) less(than share) bool {
	leftHi, leftLo := bits.Mul64(uint64(s.part), uint64(than.whole))
	rightHi, rightLo := bits.Mul64(uint64(than.part), uint64(s.whole))
	return leftHi < rightHi || leftHi == rightHi && leftLo < rightLo
}

// of is the share of a value, rounded down; the share is at most the whole.
func (s share) of(value int64) int64 {
	hi, lo := bits.Mul64(uint64(value), uint64(s.part))
	quotient, _ := bits.Div64(hi, lo, uint64(s.whole))
	return int64(quotient)
}

// cheapest are the clusters that have room for the smallest piece, the cheapest first. why says what
// is missing where there is none.
func (p *placer) cheapest(r *request) (candidates []candidate, record []byte, why string) {
	ask := r.ask
	ask.Amounts = r.smallestPiece()
	p.setPolicy(byPrice)
	p.view.market.Decide(&ask, p.decision)
	p.setPolicy(allocation.DefaultPolicy())
	if !p.decision.Found {
		why = p.decision.Message(&ask)
	}
	for i := range p.decision.Ranked() {
		c := &p.decision.Ranked()[i]
		available := make([]allocation.Amount, len(ask.Amounts))
		for n, a := range ask.Amounts {
			available[n] = allocation.Amount{Resource: a.Resource, Value: c.Available[n]}
		}
		candidates = append(candidates, candidate{c.ClusterID, available})
	}
	return candidates, p.record(), why
}

func (p *placer) setPolicy(policy allocation.Policy) {
	if err := p.view.market.SetPolicy(policy); err != nil {
		panic("reservation: a policy of constants is refused: " + err.Error())
	}
}

// uncut is the whole request on the cluster where it would be without spec.split.
func (p *placer) uncut(r *request) []cut {
	p.view.market.Decide(&r.ask, p.decision)
	if !p.decision.Found {
		return nil
	}
	return []cut{{p.decision.Best().ClusterID, r.ask.Amounts}}
}

// placePieces takes every cut as a piece of its own. False: nothing is taken.
func (p *placer) placePieces(r *request, cuts []cut) ([]placed, bool) {
	var pieces []placed
	price, ok := int64(0), len(cuts) > 0
	for i := 0; ok && i < len(cuts); i++ {
		piece, err := newRequest(broker.ReservationKey(r.object.Namespace, broker.PieceName(r.object.Name, i+1)),
			pieceOf(r.object, i+1, &cuts[i]))
		if err != nil {
			ok = false
			break
		}
		done := p.place(piece)
		pieces = append(pieces, done)
		price = addPrices(price, done.ledger.PriceNano)
		ok = done.move != nil
	}
	limit := r.ask.MaxPriceNano
	if ok && (limit < 0 || price >= 0 && price <= limit) {
		return pieces, true
	}
	p.giveBack(pieces)
	return nil, false
}

// pieceOf is the reservation of one piece.
func pieceOf(whole *broker.Reservation, n int, c *cut) *broker.Reservation {
	piece := &broker.Reservation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: whole.Namespace, Name: broker.PieceName(whole.Name, n), Generation: 1,
			UID:               partUID(whole, fmt.Sprint(n)),
			CreationTimestamp: whole.CreationTimestamp,
			OwnerReferences:   ownedBy(broker.KindReservation, whole),
		},
		Spec: broker.ReservationSpec{
			RequesterID: whole.Spec.RequesterID, RequestedResources: c.amounts.ResourceList(),
			Duration: whole.Spec.Duration, Priority: whole.Spec.Priority, Chunk: whole.Spec.Chunk,
			ClusterSelector: whole.Spec.ClusterSelector, TargetClusterID: c.clusterID,
			TTLSecondsAfterFinished: whole.Spec.TTLSecondsAfterFinished,
		},
	}
	piece.Status.PartOf = &broker.PartOf{Kind: broker.KindReservation, Name: whole.Name, UID: whole.UID, Bound: true}
	return piece
}

func ownedBy(kind string, owner metav1.Object) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: broker.SchemeGroupVersion.String(), Kind: kind, Name: owner.GetName(), UID: owner.GetUID(),
	}}
}

// smallestPiece is what spec.split.minPiece asks for, and of every other resource the same share of
// the request; at least one unit.
func (r *request) smallestPiece() allocation.Amounts {
	greatest := share{0, 1}
	for _, a := range r.minPiece {
		if of := (share{a.Value, r.ask.Amounts.Get(a.Resource)}); greatest.less(of) {
			greatest = of
		}
	}
	piece := make([]allocation.Amount, len(r.ask.Amounts))
	for i, a := range r.ask.Amounts {
		piece[i] = allocation.Amount{Resource: a.Resource, Value: max(1, r.minPiece.Get(a.Resource), greatest.of(a.Value))}
	}
	return piece
}

// cut shares the request out to the candidates in their order; nil where something is left over.
func (r *request) cut(candidates []candidate) (cuts []cut) {
	rest, least := r.ask.Amounts, r.smallestPiece()
	for _, c := range candidates {
		piece := cutPiece(rest, c.available, least)
		left := rest.Sub(piece)
		if piece == nil || len(cuts) == int(r.object.Spec.Split.MaxPieces)-1 && left != nil {
			continue // the last piece has to take all that is left
		}
		cuts, rest = append(cuts, cut{c.clusterID, piece}), left
		if rest == nil {
			return cuts
		}
	}
	return nil
}

// cutPiece is the largest piece of rest, in proportion, that fits what is available and leaves nothing
// over, or enough for another piece. All three name the same resources. nil: there is none.
func cutPiece(rest, available, least allocation.Amounts) allocation.Amounts {
	fits := share{1, 1}
	for i, a := range rest {
		if of := (share{available[i].Value, a.Value}); of.less(fits) {
			fits = of
		}
	}
	if fits == (share{1, 1}) {
		return rest
	}
	for i, a := range rest {
		if of := (share{max(0, a.Value-least[i].Value), a.Value}); of.less(fits) {
			fits = of
		}
	}
	piece := make(allocation.Amounts, len(rest))
	for i, a := range rest {
		piece[i] = allocation.Amount{Resource: a.Resource, Value: fits.of(a.Value)}
		if piece[i].Value < least[i].Value {
			return nil
		}
	}
	return piece
}

// grantedInPieces is the ledger of a split reservation. It holds nothing: its pieces do.
func (r *request) grantedInPieces(now fsm.Millis, pieces []placed, record []byte) *fsm.Ledger {
	ledger := &fsm.Ledger{Phase: store.PhaseReserved, GrantedAt: now, Reason: reasonReserved, Decision: record}
	for i := range pieces {
		ledger.PriceNano = addPrices(ledger.PriceNano, pieces[i].ledger.PriceNano)
		ledger.ExpiresAt = pieces[i].ledger.ExpiresAt
	}
	ledger.Message = describePieces(r.ask.Amounts, piecesOf(pieces), ledger.ExpiresAt)
	return ledger
}

func piecesOf(all []placed) []broker.Piece {
	pieces := make([]broker.Piece, len(all))
	for i := range all {
		o := all[i].request.object
		pieces[i] = broker.Piece{
			Name: o.Name, TargetClusterID: all[i].ledger.Target, RequestedResources: o.Spec.RequestedResources,
		}
	}
	return pieces
}

// describePieces as "cpu 12 held in 2 pieces on berlin, paris until ...".
func describePieces(amounts allocation.Amounts, pieces []broker.Piece, expiresAt fsm.Millis) string {
	var on []string
	for i := range pieces {
		on = append(on, pieces[i].TargetClusterID)
	}
	number := fmt.Sprintf("%d pieces", len(pieces))
	if len(pieces) == 1 {
		number = "1 piece"
	}
	return describeAmounts(amounts) + " held in " + number + " on " + strings.Join(on, ", ") + describeEnd(expiresAt)
}

// addPrices: what has a part without a price has none; sums saturate.
func addPrices(a, b int64) int64 {
	if a < 0 || b < 0 {
		return allocation.Unpriced
	}
	if sum := a + b; sum >= 0 {
		return sum
	}
	return int64(^uint64(0) >> 1)
}
