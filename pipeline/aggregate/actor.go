package aggregate

import (
	"cmp"
	"context"
)

// Actor is who asks an instance's API, as the one who serves the API has found out.
type Actor struct {
	Name string // of the credential; "" where none is needed
	Role string // passed on to the key's owner with the name

	// May is an error when the actor may not give a command of this name; nil allows all.
	May func(command string) error
}

type actorKey struct{}

// WithActor is a context for the Serve methods, in which actor asks. Without one, nobody is known, and everything is
// allowed.
func WithActor(ctx context.Context, actor Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

func actorOf(ctx context.Context) Actor {
	actor, _ := ctx.Value(actorKey{}).(Actor)
	return actor
}

func (a *Actor) may(command string) error {
	if a.May == nil {
		return nil
	}
	return a.May(command)
}

// sign puts into c who gives it.
func (a *Actor) sign(c *Command, by, onBehalfOf string) { c.By, c.OnBehalfOf = a.who(by, onBehalfOf) }

// who is who does something, and for whom, for the audit. What a caller says of himself is believed only where
// nobody needs a credential.
func (a *Actor) who(by, onBehalfOf string) (string, string) {
	if a.Name == "" {
		return by, onBehalfOf
	}
	return a.Name, cmp.Or(onBehalfOf, by)
}
