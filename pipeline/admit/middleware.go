package admit

import (
	"context"
	"time"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// longest is the longest time after which callers are told to try again: what is larger than the limit
// never fits.
const longest = 24 * time.Hour

var (
	_ enforce.Admitter = (*Admitter)(nil)
	_ enforce.Leaver   = (*Permit)(nil)
)

// Idle reports whether no rule asks for anything now. It is one atomic load.
func (a *Admitter) Idle() bool {
	p := a.book.current.Load()
	return p != nil && p.idle && a.cfg.Events == nil
}

// AdmitRequest is Admit for middlewares, which check requests first.
func (a *Admitter) AdmitRequest(ctx context.Context, r enforce.Request) (enforce.Admission, error) {
	p, err := a.Admit(ctx, Request{API: r.API, Dims: r.Dims, Attrs: r.Attrs, Cost: r.Cost})
	if err != nil {
		return enforce.Admission{}, err
	}
	return p.Admission(), nil
}

// Admission is the answer as middlewares have it.
func (p *Permit) Admission() enforce.Admission {
	switch n := &p.Numbers; {
	case p.Admitted && p.a == nil:
		return enforce.Admission{Decision: enforce.Decision{Allowed: true}}
	case p.Admitted:
		out := enforce.Admission{Decision: enforce.Decision{Allowed: true}, Permit: p.Event, Held: p}
		if p.By != nil && !p.InDoubt {
			out.Standing = enforce.Standing{Rule: p.By.Name, Public: p.By.Rule.Public, Limit: n.Limit, Remaining: n.Remaining, Reset: n.ResetAfter}
		}
		return out
	case p.InDoubt || p.By == nil:
		return enforce.Admission{Decision: enforce.Unknown()}
	default:
		v := &verdict.Verdict{Rule: p.By.Name, Public: p.By.Rule.Public, Action: p.By.Rule.Action, Limit: n.Limit}
		return enforce.Admission{Decision: enforce.Refuse(v, min(n.RetryAfter, longest))}
	}
}
