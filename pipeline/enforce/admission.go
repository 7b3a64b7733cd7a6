package enforce

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// Admitter asks for permits, for requests that no verdict denies. An admit.Admitter is one; services
// without strict limits need not link it. Its methods may be called by many goroutines.
type Admitter interface {
	// Idle reports whether no rule asks for anything now. It is one atomic load.
	Idle() bool
	// AdmitRequest asks whether a request may go on. An error is for a context that ended, and for a
	// request that is wrong. It keeps no dims.
	AdmitRequest(ctx context.Context, r Request) (Admission, error)
}

// RunningAdmitter is an Admitter that works while Run does.
type RunningAdmitter interface {
	Admitter
	// Run works until ctx ends, and gives back what is left.
	Run(ctx context.Context) error
	// WaitReady waits until it knows the rules. Before that each request is in doubt.
	WaitReady(ctx context.Context) error
}

// Request describes an action for which an Admitter grants or denies a permit.
type Request struct {
	API  string
	Dims []event.Dim
	// Cost is that of the action at most; 0 is 1.
	Cost event.Decimal
	// Attrs are further attributes: numbers that rules sum, at their most.
	Attrs []event.Attr
}

// Reservation holds the most that a request may use, for rules with `strict` that sum it.
type Reservation struct {
	// Attrs are numbers, such as tokens and a price, and other attributes that no dimension has.
	Attrs []event.Attr
	// Cost is the event's at most; 0 is 1.
	Cost event.Decimal
}

// Admission is an Admitter's answer.
type Admission struct {
	// Decision is that of a check: see Refuse and Unknown. An unavailable one is in doubt, and may be
	// tried again after a second.
	Decision Decision
	// Permit travels with the request's event; the zero value is none.
	Permit event.Permit
	// Held ends with the request; nil for nothing.
	Held Held
	// Standing is the position of the request's key when it is let in.
	Standing Standing
}

// Held is a permit that is held. The first call ends it, others do nothing.
type Held interface {
	Done(outcome string) // the request has ended, and its event, if there is one, is emitted
	Cancel()             // the request did nothing, and has no event
}

// Standing describes a key's position under the limit with the least room. The zero value is none.
type Standing struct {
	Rule, Public     string // the limit's name, and the one that callers may see
	Limit, Remaining event.Decimal
	Reset            time.Duration // until the whole limit is there again; 0: not known
}

// Refuse is the decision to deny a request by a limit, as a verdict would: v names the rule, the action
// and the limit. Callers are told to try again after a time; 0 is not known, the greatest
// time.Duration is never.
func Refuse(v *verdict.Verdict, after time.Duration) Decision { return RefuseAt(now(), v, after) }

// RefuseAt is Refuse as of a moment.
func RefuseAt(at event.Micros, v *verdict.Verdict, after time.Duration) Decision {
	until := event.Forever
	if after < math.MaxInt64 {
		until = at + event.FromDuration(after)
	}
	return Decision{until: until, at: at, by: v}
}

// Unknown is the decision to deny a request since nobody knows whether it may go on: it is Unavailable.
func Unknown() Decision { return Decision{at: now(), by: &unavailable} }

// Admitted tells the caller of an admitted request where its key stands, by the fields that a denial
// has.
func (a *Answers) Admitted(h http.Header, s Standing) { a.AdmittedAt(h, s, now()) }

// AdmittedAt is Admitted as of a moment.
func (a *Answers) AdmittedAt(h http.Header, s Standing, at event.Micros) {
	if s.Rule == "" || s.Limit <= 0 {
		return
	}
	seconds := int64((s.Reset + time.Second - 1) / time.Second)
	if !a.NoRateLimit {
		public := a.public(Decision{by: &verdict.Verdict{Rule: s.Rule, Public: s.Public}})
		name := public.Name
		if name == "" {
			name = unnamed
		}
		field := sfString(name) + ";r=" + strconv.FormatInt(whole(s.Remaining), 10)
		if seconds > 0 {
			field += ";t=" + strconv.FormatInt(min(seconds, maxSFInteger), 10)
		}
		h.Set("RateLimit", field)
		h.Set("RateLimit-Policy", sfString(name)+";q="+strconv.FormatInt(whole(s.Limit), 10))
	}
	if a.XRateLimit {
		h.Set("X-RateLimit-Limit", strconv.FormatInt(whole(s.Limit), 10))
		h.Set("X-RateLimit-Remaining", strconv.FormatInt(whole(s.Remaining), 10))
		if seconds > 0 {
			reset := (at + event.FromDuration(s.Reset) + event.Second - 1) / event.Second
			h.Set("X-RateLimit-Reset", strconv.FormatInt(int64(reset), 10))
		}
	}
}
