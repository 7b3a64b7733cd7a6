package protocol

import "github.com/tallygate/tallygate/event"

// How long things may take.
const (
	AnswerWithin = event.Second     // an answer later than that is none
	AskFor       = 2 * event.Second // a question may be answered for so long, by the shard's clock
	maxTries     = 4                // questions about one key
	maxSilent    = 2                // of which so many may stay without an answer
)

// Clock is an enforcer's reading of its clocks.
type Clock struct {
	Wall event.Micros // may be set
	Mono event.Micros // may stand still while the machine sleeps
}

// since returns the time since something, by the clock that says more.
func (c Clock) since(then Clock) event.Micros {
	return max(c.Wall-then.Wall, c.Mono-then.Mono)
}

// Heard is an enforcer's latest reading of a shard's clock. The zero value has heard nothing.
type Heard struct {
	clock event.Micros
	at    Clock
}

// Note notes an answer's Clock at the moment when the answer came.
func (h *Heard) Note(clock event.Micros, now Clock) { h.clock, h.at = clock, now }

// Before is until when a question that is asked now may be answered. Before the first answer no
// question may: the answer then is Late, and says the clock.
func (h *Heard) Before(now Clock) event.Micros {
	if h.clock == 0 {
		return 0
	}
	return h.clock + max(0, now.Mono-h.at.Mono) + AskFor
}

// Request is one request's way to its permits: for one key after the other, in an order that all
// enforcers share, all or none. Fill in Keys; the methods are for one goroutine at a time.
type Request struct {
	Keys []Ask

	grants []Answer // of Keys, so far
	tries  int      // for the present key
	silent int      // of which had no answer
	sent   Clock
	before event.Micros // of a question for the present key that was not answered; 0: none
}

// Move is a Request's next step.
type Move uint8

// The moves.
const (
	AskNow  Move = iota // ask for Keys[Next.Key], with Before from what was heard
	Fetch               // fetch the rules in force, make Keys anew and begin a new Request
	Perform             // all permits are granted: see Grants
	Refuse              // a limit is reached: Next.Answer says which
	Unknown             // nobody can say
)

// Next is a Request's next step, and the keys whose ids to cancel, until that is answered.
type Next struct {
	Move   Move
	Key    int
	Answer Answer
	Cancel []int
}

// Begin is the first move.
func (r *Request) Begin() Next {
	if len(r.Keys) == 0 {
		return Next{Move: Perform}
	}
	return Next{Move: AskNow}
}

// Grants returns what was granted, by key.
func (r *Request) Grants() []Answer { return r.grants }

// Question is the question for the present key, as of now, when it may be answered until a moment by
// the shard's clock: see Heard.Before. One that is asked again may not be answered for longer than it
// might have been the first time. Its permit may have been granted then, and be over: whoever stood still
// meanwhile would get another one by the same name, whose event would count as a repeat.
func (r *Request) Question(before event.Micros, now Clock) Ask {
	q := r.Keys[len(r.grants)]
	if q.Before = before; q.Again && r.before > 0 && !off.before {
		q.Before = min(before, r.before)
	}
	r.before = q.Before
	r.sent, r.tries = now, r.tries+1
	return q
}

// Answered takes in the answer to the last question; nil for none. What was asked without an answer is
// asked as Again: no connection, proxy or client may repeat a question by itself.
func (r *Request) Answered(a *Answer, now Clock) Next {
	key := len(r.grants)
	if a != nil && now.since(r.sent) > AnswerWithin && !off.answer {
		a = nil
	}
	switch {
	case a == nil:
		r.Keys[key].Again = true
		if r.silent++; r.silent < maxSilent {
			return Next{Move: AskNow, Key: key}
		}
		return Next{Move: Unknown, Key: key, Cancel: r.asked(true)}
	case a.Status == Granted:
		r.grants = append(r.grants, *a)
		r.tries, r.silent, r.before = 0, 0, 0
		if key++; key < len(r.Keys) {
			return Next{Move: AskNow, Key: key}
		}
		return Next{Move: Perform}
	case a.Status == Spent && r.Keys[key].Named:
		return Next{Move: Refuse, Key: key, Answer: *a, Cancel: r.asked(r.silent > 0)}
	case a.Status == Taken: // what has the id is another action's
		return Next{Move: Refuse, Key: key, Answer: *a, Cancel: r.asked(false)}
	case a.Status == Denied, a.Status == TooMany:
		return Next{Move: Refuse, Key: key, Answer: *a, Cancel: r.asked(r.silent > 0)}
	case a.Status == Late && r.tries < maxTries:
		return Next{Move: AskNow, Key: key}
	case a.Status == Outdated, a.Status == OutOfRange:
		return Next{Move: Fetch, Key: key, Answer: *a, Cancel: r.asked(r.silent > 0)}
	default:
		return Next{Move: Unknown, Key: key, Answer: *a, Cancel: r.asked(r.silent > 0 || a.Status == Spent)}
	}
}

// asked lists the keys that have permits, and the present one if it may have.
func (r *Request) asked(present bool) (keys []int) {
	if off.cancels {
		return nil
	}
	for i := range r.grants {
		keys = append(keys, i)
	}
	if present {
		keys = append(keys, len(r.grants))
	}
	return keys
}
