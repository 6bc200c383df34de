package fsm

import (
	"errors"
	"fmt"
)

// What Apply, the decoders and ReadSnapshot return. From Apply each is fatal: the node must
// stop, since going on would let its state differ from the others'.
var (
	// ErrCorrupt: the bytes are damaged or were never written by an encoder of this package.
	ErrCorrupt = errors.New("corrupt data")
	// ErrUnknownCommand: written by a newer version, in words this one does not know.
	ErrUnknownCommand = errors.New("unknown command: this binary is too old for the log")
	// ErrIgnorable: an unknown command that says of itself that it changes no state. Apply
	// passes over it.
	ErrIgnorable = errors.New("unknown command that changes nothing")
	// ErrTooLarge: beyond a limit of limits.go.
	ErrTooLarge = errors.New("too large")
	// ErrInvalid: a command that says two things at once, or nothing.
	ErrInvalid = errors.New("invalid command")
	// ErrUnsupportedBehaviour: the state's behaviourVersion is above SupportedBehaviour.
	ErrUnsupportedBehaviour = errors.New("behaviour version is not supported by this binary")
)

// InvariantError is what Apply panics with when an account's figures and its holds part ways.
type InvariantError struct {
	Revision Revision
	Key      string
	Broken   string
}

func (e *InvariantError) Error() string {
	return fmt.Sprintf("invariant broken at revision %d in %s: %s", e.Revision, e.Key, e.Broken)
}
