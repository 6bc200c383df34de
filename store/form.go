package store

import "context"

// form says which of an object's two forms a request sees.
type form uint8

const (
	formFull form = iota
	// formReduced is for agents: nothing of it tells about rivals. See Kind.reduce.
	formReduced
)

type formKey struct{}

// WithoutDecision marks a request that sees objects in the form for agents: a reservation without
// status.decision and without the message of a refusal, an event without its message. Get, lists,
// watches and the objects that updates return follow it. What is written is not affected: the
// decision is the ledger's.
func WithoutDecision(ctx context.Context) context.Context {
	return context.WithValue(ctx, formKey{}, formReduced)
}

func formOf(ctx context.Context) form {
	f, _ := ctx.Value(formKey{}).(form)
	return f
}
