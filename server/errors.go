package server

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// statuses maps what can go wrong behind the API to what a client is told. First match wins.
// Retry-After makes clients send the same request again by themselves, creates included: it is
// said only where surely nothing was proposed.
var statuses = []struct {
	err     error
	code    int
	reason  metav1.StatusReason
	retry   bool
	message string
}{
	{
		store.ErrUnknownOutcome, http.StatusGatewayTimeout, metav1.StatusReasonTimeout, false,
		"it may or may not have been done: read before trying again",
	},
	{
		store.ErrNoLeader, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, true,
		"nothing was changed",
	},
	{
		cluster.ErrOverloaded, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, true,
		"nothing was changed",
	},
	{
		cluster.ErrHalted, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, false,
		"nothing was changed; the operator must act",
	},
	{
		cluster.ErrNotProposed, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, true,
		"nothing was changed",
	},
	{
		cluster.ErrShutdown, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, false,
		"ask another node",
	},
	{
		cluster.ErrTooLarge, http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, false,
		"nothing was changed",
	},
	{
		cluster.ErrUnknownNode, http.StatusNotFound, metav1.StatusReasonNotFound, false,
		"see bourse raft list-peers",
	},
	{
		cluster.ErrInvalid, http.StatusBadRequest, metav1.StatusReasonBadRequest, false,
		"nothing was changed",
	},
	{
		cluster.ErrForbidden, http.StatusForbidden, metav1.StatusReasonForbidden, false,
		"nothing was changed",
	},
	{
		storage.ErrResourceVersionSetOnCreate, http.StatusBadRequest, metav1.StatusReasonBadRequest, false,
		"remove metadata.resourceVersion",
	},
}

// apiError gives an error its status. One that has a status, or is storage's own, stays as it is.
func apiError(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		return err
	}
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			failure := metav1.Status{
				Status: metav1.StatusFailure, Code: int32(s.code), Reason: s.reason,
				Message: fmt.Sprintf("%v (%s)", err, s.message),
			}
			if s.retry {
				failure.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}
			}
			return &apierrors.StatusError{ErrStatus: failure}
		}
	}
	return store.APIError(err)
}

// refusalError is for commands that do not go through storage.Interface.
func refusalError(r *fsm.Refusal) error {
	message := fmt.Sprintf("refused by %s at revision %d (rule %d)", r.Key, r.Revision, r.Kind)
	if r.Kind == fsm.RefusedUnknown {
		return fmt.Errorf("%w: %s", store.ErrUnknownOutcome, message)
	}
	return apierrors.NewConflict(schema.GroupResource{}, r.Key, errors.New(message))
}
