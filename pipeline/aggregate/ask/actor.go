package ask

import (
	"cmp"
	"context"
)

// Actor is the authenticated caller of an instance's API. The zero value is an anonymous caller who
// may do everything.
type Actor struct {
	Name string // of the credential; "" if none is required
	Role string // forwarded to the key's owner with the name

	// May returns an error if the actor may not give the named command. Nil allows all.
	May func(command string) error
}

type actorKey struct{}

// WithActor returns a context that makes actor the caller of the Serve methods. Without one the
// caller is anonymous and may do everything.
func WithActor(ctx context.Context, actor Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// ActorOf returns the caller of ctx; without WithActor it is an anonymous one.
func ActorOf(ctx context.Context) Actor {
	actor, _ := ctx.Value(actorKey{}).(Actor)
	return actor
}

func (a *Actor) may(command string) error {
	if a.May == nil {
		return nil
	}
	return a.May(command)
}

// Who returns who does something and on whose behalf, for the audit. The names that a caller states
// are believed only if no credential is required.
func (a *Actor) Who(by, onBehalfOf string) (string, string) {
	if a.Name == "" {
		return by, onBehalfOf
	}
	return a.Name, cmp.Or(onBehalfOf, by)
}
