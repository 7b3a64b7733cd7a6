// Package permits has an Admitter for the tests of what asks one. It is no part of package rig, which
// package enforce's own tests use.
package permits

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// Admitter answers by the value of the first dimension, and notes what it hears. "none" needs no
// permit, "limited" gets none, "doubt" and "wrong" get no answer, "left" waits until its caller has
// left; all others get one.
type Admitter struct {
	NoRule bool               // it is idle
	Leave  context.CancelFunc // of the caller, while it is asked; may be nil

	mu    sync.Mutex
	heard []string
}

// Note adds to what was heard.
func (a *Admitter) Note(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard = append(a.heard, what)
}

// Heard is what was noted since the last call: "asked post.send of ok", with ": 5" behind it for a cost
// of 5 and "{tokens}" for such attributes, "ok done success", "ok cancelled" or "ok left".
func (a *Admitter) Heard() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.heard
	a.heard = nil
	return out
}

// Idle reports whether no rule asks for anything.
func (a *Admitter) Idle() bool { return a.NoRule }

// AdmitRequest answers. Of the limit of 5, the length of who asks is used, but for a millionth.
func (a *Admitter) AdmitRequest(ctx context.Context, r enforce.Request) (enforce.Admission, error) {
	who := r.Dims[0].Value
	question := "asked " + r.API + " of " + who
	if r.Cost != 0 {
		question += ": " + r.Cost.String()
	}
	if len(r.Attrs) > 0 {
		names := make([]string, 0, len(r.Attrs))
		for _, attr := range r.Attrs {
			names = append(names, attr.Name)
		}
		question += " {" + strings.Join(names, " ") + "}"
	}
	a.Note(question)
	if a.Leave != nil {
		a.Leave()
	}
	switch who {
	case "none":
		return enforce.Admission{Decision: enforce.Decision{Allowed: true}}, nil
	case "limited":
		v := &verdict.Verdict{Rule: "daily-detector", Public: "per day", Action: verdict.ActBlock, Limit: 5 * event.One}
		return enforce.Admission{Decision: enforce.Refuse(v, 90*time.Second)}, nil
	case "doubt":
		return enforce.Admission{Decision: enforce.Unknown()}, nil
	case "wrong":
		return enforce.Admission{}, errors.New("wrong")
	case "left":
		<-ctx.Done()
		return enforce.Admission{}, ctx.Err()
	}
	return enforce.Admission{
		Decision: enforce.Decision{Allowed: true}, Permit: Of(who), Held: &held{a: a, who: who},
		Standing: enforce.Standing{
			Rule: "daily-detector", Public: "per day",
			Limit: 5 * event.One, Remaining: event.Decimal(5-len(who))*event.One + 1, Reset: 1500 * time.Millisecond,
		},
	}, nil
}

// Of is the permit that someone gets.
func Of(who string) event.Permit { return event.Permit{ID: "permit of " + who, At: 7} }

// held notes its first end.
type held struct {
	a    *Admitter
	who  string
	once sync.Once
}

func (h *held) end(how string)      { h.once.Do(func() { h.a.Note(h.who + " " + how) }) }
func (h *held) Done(outcome string) { h.end("done " + outcome) }
func (h *held) Cancel()             { h.end("cancelled") }
func (h *held) Leave()              { h.end("left") }
