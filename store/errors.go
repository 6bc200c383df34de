package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"

	"github.com/bourse-dev/bourse/fsm"
)

// statusError is an API status that still matches its cause with errors.Is.
type statusError struct {
	*apierrors.StatusError
	cause error
}

func (e *statusError) Unwrap() error { return e.cause }

// APIError turns an error of a Writer into the API's: 503 with Retry-After only where surely nothing
// was proposed (clients send the request again by themselves), 504 where the outcome is unknown.
// Any other error is returned as it is.
func APIError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNoLeader):
		status := apierrors.NewServiceUnavailable("the exchange has no leader at the moment; nothing was changed")
		status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}
		return &statusError{status, err}
	case errors.Is(err, ErrUnknownOutcome):
		return &statusError{apierrors.NewTimeoutError(
			"the exchange lost its leader while it worked on this request; it may or may not have been done: read the object before trying again", 0), err}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &statusError{apierrors.NewTimeoutError("the request did not complete in time: "+err.Error(), 0), err}
	case errors.Is(err, fsm.ErrTooLarge):
		return &statusError{apierrors.NewRequestEntityTooLargeError(err.Error()), err}
	default:
		return err
	}
}

// errRerun: the row was not as the guards said. Never leaves the package.
var errRerun = errors.New("guard refused")

// errResultLost answers a write that was done while this node took a snapshot: it may have been followed by another.
var errResultLost = &statusError{apierrors.NewTimeoutError(
	"it was done, but this node was brought up to date meanwhile and can't tell with what result: read the object", 0), ErrUnknownOutcome}

// refusalError turns a refusal of a write to key into storage's error. One table for all writes.
func (s *Storage) refusalError(key string, r *fsm.Refusal) error {
	switch {
	case r.Kind == fsm.RefusedGuard:
		return errRerun
	case r.Kind == fsm.RefusedExists && r.Key == key:
		return storage.NewKeyExistsError(key, int64(r.Revision))
	case r.Kind == fsm.RefusedMissing && r.Key == key:
		return storage.NewKeyNotFoundError(key, int64(r.Revision))
	case r.Kind == fsm.RefusedInUse:
		return apierrors.NewConflict(s.kind.Resource, nameOf(key), fmt.Errorf(
			"live reservations hold capacity of it (as of revision %d): delete them, or set spec.lending.withdrawn to end them", r.Revision))
	case r.Kind == fsm.RefusedUnknown:
		return APIError(fmt.Errorf("%w: %s", ErrUnknownOutcome, r))
	case r.Kind == fsm.RefusedExists: // of a part that the leader would have made with it
		return PartTakenError(s.kind, nameOf(key), r.Key, r.Revision)
	case r.Kind == fsm.RefusedInvalid && r.Lack.Resource == LackBytes:
		return TooLargeError(s.kind, r)
	case r.Kind == fsm.RefusedInvalid:
		return apierrors.NewBadRequest(fmt.Sprintf("%s %q can't be stored: %s", s.kind.Resource.String(), nameOf(key), r))
	default: // of moves and reports: their rooms turn these into a status before they get here
		return apierrors.NewConflict(s.kind.Resource, nameOf(key), errors.New(r.String()))
	}
}

// PartTakenError refuses the object of that name: the row of one of its parts is another's.
func PartTakenError(kind *Kind, name, part string, as fsm.Revision) error {
	return apierrors.NewConflict(kind.Resource, name, fmt.Errorf(
		"the name of a part is taken: %s %q exists (as of revision %d); nothing was reserved", resourceOf(part), nameOf(part), as))
}

// TooLargeError is 413 for a refusal that lacks LackBytes: of a write, or of the dry run of one.
func TooLargeError(kind *Kind, r *fsm.Refusal) error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
		"%s %q is done whole or not at all and needs %d bytes of one log entry, the limit is %d: fewer or smaller items take less",
		kind.Resource.String(), nameOf(r.Key), r.Lack.Requested, r.Lack.Available))
}

// LackBytes is the resource that a command lacks which can't be one log entry: a room says so with
// RefusedInvalid.
const LackBytes = "bytes"

// resourceOf the object, from its key.
func resourceOf(key string) string {
	resource, _, _ := strings.Cut(key, "/")
	return resource
}

// nameOf the object, from its key.
func nameOf(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

// expired is 410: the client must list anew.
func expired(what string) error {
	return apierrors.NewResourceExpired("The resourceVersion for the provided " + what + " is too old.")
}

// continueExpired is 410 for a paged list, with a token that goes on at the present revision.
func continueExpired(key, prefix string) error {
	status := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
		"List anew without it, or go on with the token in this response; what changed between the pages may then be missing or twice.")
	if token, err := storage.EncodeContinue(key, prefix, -1); err == nil {
		status.ErrStatus.Continue = token
	}
	return status
}
