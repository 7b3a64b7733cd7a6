// Package gate decides what becomes of a request, for every door: middleware, interceptors, and the
// protocols of proxies. It is pure. A door reads a request, carries out what the Outcome asks for, and
// writes what it answers.
package gate

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// Ambiguous is the value of a dimension, or the API, of a request that says several things where one must
// count. No client can send it.
const Ambiguous = "\x00ambiguous"

// RetryInDoubt is the Retry-After of a permit that nobody could answer about. A stale table has no such time: it may
// be so for long.
const RetryInDoubt = time.Second

// Request is a request as its door has read it, and what was found out about it so far.
type Request struct {
	API     string
	Dims    []event.Dim
	Permit  event.Permit // that the request brings: no other is asked for
	Unclear string       // why it is refused, as it does not say clearly who sent it, or for what; "": it does

	Languages string // its Accept-Language
	Head      bool   // its answer has no body
	Key       string // the text of the key over the limit, for Answers.PartitionKey; "": not known

	Decision  enforce.Decision    // of the check
	Waits     bool                // the check's throttle concerns it
	Asks      bool                // rules ask for permits
	Reserve   enforce.Reservation // what its permit is for
	Asked     bool                // there is an Admission
	Admission enforce.Admission   // the Admitter's answer
	Now       event.Micros        // when that came

	// Tells says that the door's answers to allowed requests say what is left. Header, if it is there already,
	// gets those fields.
	Tells  bool
	Header map[string][]string
}

// Read refuses the request if its API or one of its dimensions is Ambiguous.
func (r *Request) Read() {
	if r.API == Ambiguous || AnyAmbiguous(r.Dims) {
		r.Unclear = enforce.Unclear
	}
}

// AnyAmbiguous reports whether a dimension is Ambiguous.
func AnyAmbiguous(dims []event.Dim) bool {
	for i := range dims {
		if dims[i].Value == Ambiguous {
			return true
		}
	}
	return false
}

// Waited notes the check after the request's turn.
func (r *Request) Waited(d enforce.Decision) { r.Decision, r.Waits = d, false }

// Answered notes what an Admitter has answered. An error is of a client that left, or of a request for which
// nothing can be asked.
func (r *Request) Answered(a enforce.Admission, err error, now event.Micros) {
	if err != nil {
		a = enforce.Admission{Decision: enforce.Unknown()}
	}
	r.Admission, r.Asked, r.Now = a, true, now
}

// Do names a door's next step with a request.
type Do uint8

// The values of Outcome.Do.
const (
	Allow  Do = iota // let it in
	Deny             // answer it: a limit denies
	Refuse           // answer it: it is Unclear
	Wait             // wait for its turn, then Waited, and decide again
	Ask              // ask for a permit, then Answered, and decide again
)

// Outcome holds a decision: the next step, and of an answer all that the door writes.
type Outcome struct {
	Do     Do
	By     enforce.Decision // what decided: the check, or the Admitter
	Permit event.Permit     // what its event carries
	Held   enforce.Held     // what ends with the request; nil: nothing
	Event  string           // the outcome of its event; "": its response's

	// Header has the response's fields: what an allowed request is told, or those of an answer.
	Header map[string][]string
	// Status, Problem and After are an answer's. After is when to try again; 0 is not known.
	Status  int
	Problem *enforce.Problem
	After   time.Duration

	head bool
}

// Decide is the decision of all doors.
func Decide(answers *enforce.Answers, r *Request) Outcome {
	switch {
	case r.Unclear != "":
		return refuse(r)
	case r.Waits:
		return Outcome{Do: Wait}
	case !r.Decision.Allowed:
		return deny(answers, r, r.Decision)
	case r.Asks && r.Permit.ID == "" && !r.Asked:
		return Outcome{Do: Ask}
	case !r.Asked:
		return Outcome{By: r.Decision, Permit: r.Permit, Header: r.Header}
	case !r.Admission.Decision.Allowed:
		return deny(answers, r, r.Admission.Decision)
	}
	out := Outcome{By: r.Decision, Permit: r.Admission.Permit, Held: r.Admission.Held, Header: r.Header}
	if r.Tells && r.Admission.Standing.Rule != "" {
		answers.AdmittedAt(out.header(), r.Admission.Standing, r.Now)
	}
	return out
}

// Left tells an allowed request what the table knows to be left. A permit's numbers stay first.
func (o *Outcome) Left(answers *enforce.Answers, left []enforce.Left) {
	if len(left) > 0 {
		answers.Quotas(o.header(), left)
	}
}

func (o *Outcome) header() map[string][]string {
	if o.Header == nil {
		o.Header = map[string][]string{}
	}
	return o.Header
}

// refuse answers a request that does not say clearly who sent it, or for what.
func refuse(r *Request) Outcome {
	header, p := enforce.Refusal(r.Unclear)
	return Outcome{Do: Refuse, Status: p.Status, Header: header, Problem: &p, head: r.Head}
}

// deny answers a request that the check or the Admitter denies. Whatever the status is, what a limit denied did
// not happen.
func deny(answers *enforce.Answers, r *Request, d enforce.Decision) Outcome {
	out := Outcome{Do: Deny, By: d, Permit: r.Permit, Event: event.OutcomeLimited, After: d.RetryAfter(), head: r.Head}
	status, header, problem := answers.Denial(d, enforce.DenialContext{Languages: r.Languages, Key: r.Key})
	out.Status, out.Header, out.Problem = status, header, &problem
	out.Header["Content-Type"] = []string{enforce.ProblemType}
	if r.Asked && d.Unavailable() {
		out.After = RetryInDoubt
		out.Header["Retry-After"] = []string{strconv.Itoa(int(RetryInDoubt / time.Second))}
	}
	return out
}

// Body returns the answer's body, a Problem in JSON; nil where there is none.
func (o *Outcome) Body() []byte {
	if o.head {
		return nil
	}
	body, err := json.Marshal(o.Problem)
	if err != nil { // strings and numbers only
		return nil
	}
	return append(body, '\n')
}

// KeyOf returns the text of the key whose verdict decided, of all that concern the request; "" when it is
// gone.
func KeyOf(d enforce.Decision, all []*verdict.Verdict) (key string) {
	until := event.FromTime(d.Until())
	for _, v := range all {
		if v.Rule == d.Rule() && v.Until == until {
			return v.KeyText()
		}
		if v.Rule == d.Rule() && v.Action == verdict.ActThrottle { // d ends when its turn would come
			key = v.KeyText()
		}
	}
	return key
}
