package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/store/storetest"
)

// forgetful answers with the first of several commands, after all of them: as Apply does who asks again.
type forgetful struct {
	*storetest.Leader
	rest []fsm.Txn
}

func (f *forgetful) Write(ctx context.Context, txn fsm.Txn) (fsm.Result, error) {
	first, err := f.Leader.Write(ctx, txn)
	for i := range f.rest {
		if _, err := f.Leader.Write(ctx, f.rest[i]); err != nil {
			return fsm.Result{}, err
		}
	}
	return first, err
}

func TestWhoAsksAgainForABatchThatIsGoneHearsHowItWasLast(t *testing.T) {
	t.Parallel()
	db, leader := storetest.NewDB()
	key := broker.BatchKey("rome", "b")
	results := store.EncodeBatchResults([]broker.BatchResult{{Name: "a", Phase: broker.ReservationReserved, TargetClusterID: "paris"}})
	writer := &forgetful{leader, []fsm.Txn{
		{Writes: []fsm.Write{{Key: key, Facts: results, Ledger: &fsm.Ledger{Phase: store.PhaseReserved, Message: "1/1 Reserved"}}}},
		{Writes: []fsm.Write{{Key: key, Delete: true}}},
	}}
	batches := store.NewStorage(db, writer, store.BatchKind())
	asked := &broker.ReservationBatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: "rome", Name: "b", UID: "b-1"},
		Spec:       broker.ReservationBatchSpec{Items: []broker.BatchItem{{Name: "a", Spec: reservation("a").Spec}}},
	}
	out := &broker.ReservationBatch{}
	require.NoError(t, batches.Create(t.Context(), "/reservationbatches/rome/b", asked, out, 0))
	require.Equal(t, "1/1 Reserved", out.Status.Message)
	require.Equal(t, "paris", out.Status.Results[0].TargetClusterID)
}
