package cluster

import (
	"errors"
	"fmt"

	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// Errors of this package; store.ErrNoLeader, store.ErrUnknownOutcome and store.ErrIdentity complete
// them. They keep their identity across the internal RPC.
var (
	// ErrNotProposed: surely nothing happened; another try, perhaps at another node, may succeed.
	ErrNotProposed = errors.New("not proposed")
	// ErrNotLeader is an ErrNotProposed: this node does not lead, or not yet.
	ErrNotLeader = fmt.Errorf("%w: not the leader", ErrNotProposed)
	// ErrOverloaded is an ErrNotProposed: too much waits already.
	ErrOverloaded = fmt.Errorf("%w: too many requests wait", ErrNotProposed)
	// ErrTooLarge: the command exceeds MaxCommandBytes; nothing was proposed.
	ErrTooLarge = errors.New("command too large")
	// ErrInvalid: the request is malformed; nothing was done.
	ErrInvalid = errors.New("invalid request")
	// ErrWrongCluster: the other node belongs to another exchange.
	ErrWrongCluster = errors.New("another exchange")
	// ErrUnknownNode: no such node in the group.
	ErrUnknownNode = errors.New("unknown node")
	// ErrBehaviour: the node's version does not know the group's behaviour version.
	ErrBehaviour = errors.New("the group runs a newer behaviour version than this node knows")
	// ErrHalted: the replicas' hashes differ and no majority agrees; writes are refused.
	ErrHalted = fmt.Errorf("%w: the replicas differ and no majority agrees", ErrNotProposed)
	// ErrForbidden: the certificate, or the node, may not do this.
	ErrForbidden = errors.New("forbidden")
	// ErrShutdown: the node is going down.
	ErrShutdown = errors.New("the node is shutting down")
)

// Exit codes that go to Config.Fatal: the process must end with them.
const (
	ExitUnknownCommand = 70 // a command that this version doesn't know was committed
	ExitCorrupt        = 71 // a committed command, or a file, can't be read
	ExitRestore        = 72 // a snapshot could not be installed
	ExitDiverged       = 73 // this replica differs from the majority
	ExitRefused        = 74 // the group refuses this node: identity, exchange or version
	ExitRemoved        = 75 // the node was removed from the group
)

// ExitCodeOf an error of NewNode: what the process should end with; 1 where none of the above fits.
func ExitCodeOf(err error) int {
	switch {
	case errors.Is(err, fsm.ErrUnknownCommand), errors.Is(err, fsm.ErrUnsupportedBehaviour):
		return ExitUnknownCommand
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, fsm.ErrCorrupt):
		return ExitCorrupt
	case refused(err):
		return ExitRefused
	default:
		return 1
	}
}

// code of an error on the wire. Numbers are shared between versions: append only.
type code uint8

const (
	codeOK           code = 0
	codeInternal     code = 1
	codeNotProposed  code = 2
	codeNotLeader    code = 3
	codeOverloaded   code = 4
	codeUnknown      code = 5
	codeTooLarge     code = 6
	codeInvalid      code = 7
	codeWrongCluster code = 8
	codeIdentity     code = 9
	codeUnknownNode  code = 10
	codeBehaviour    code = 11
	codeHalted       code = 12
	codeForbidden    code = 13
	codeShutdown     code = 14
)

// errorCodes orders special before general: the first match is sent.
var errorCodes = []struct {
	code code
	err  error
}{
	{codeNotLeader, ErrNotLeader},
	{codeOverloaded, ErrOverloaded},
	{codeHalted, ErrHalted},
	{codeNotProposed, ErrNotProposed},
	{codeUnknown, store.ErrUnknownOutcome},
	{codeTooLarge, ErrTooLarge},
	{codeInvalid, ErrInvalid},
	{codeWrongCluster, ErrWrongCluster},
	{codeIdentity, store.ErrIdentity},
	{codeUnknownNode, ErrUnknownNode},
	{codeBehaviour, ErrBehaviour},
	{codeForbidden, ErrForbidden},
	{codeShutdown, ErrShutdown},
}

func codeOf(err error) code {
	if err == nil {
		return codeOK
	}
	for _, c := range errorCodes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return codeInternal
}

// remoteError is an error as another node told it. It is what its code stands for.
type remoteError struct {
	node    string
	code    code
	message string
}

func (e *remoteError) Error() string { return fmt.Sprintf("node %s: %s", e.node, e.message) }

func (e *remoteError) Unwrap() error {
	for _, c := range errorCodes {
		if c.code == e.code {
			return c.err
		}
	}
	return nil
}

// notProposed marks an error of which the caller knows that nothing happened.
func notProposed(err error) error {
	if err == nil || errors.Is(err, ErrNotProposed) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNotProposed, err)
}

// unknownOutcome marks an error that leaves open whether the command was entered.
func unknownOutcome(err error) error {
	if err == nil || errors.Is(err, store.ErrUnknownOutcome) {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
}
