package enforce

import (
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// Decision is the answer to a check. It is four words, so that it is returned in registers: a
// larger one would be half the time of a check that finds nothing, as nearly all do.
type Decision struct {
	Allowed bool             // false when a verdict denies; one whose action is log allows
	until   event.Micros     // 0 without a deciding verdict
	at      event.Micros     // the time for which the check was answered
	by      *verdict.Verdict // the deciding verdict, without key and times; nil: there is none
}

// API is the name of what a caller is about to do, such as order.create. It is a type of its own so
// that a check whose arguments are swapped does not compile: it would allow everybody.
type API string

// unavailable stands for the missing verdict of a check that is denied because the table is stale.
var unavailable = verdict.Verdict{Action: verdict.ActBlock}

// Rule returns the deciding verdict's rule; "" without one. It is for logs and metrics. Callers may
// see only Public: a rule's name may say what it looks for.
func (d Decision) Rule() string {
	if d.by == nil {
		return ""
	}
	return d.by.Rule
}

// Public returns the rule's name that callers may see; "" when no verdict decides or the rule has
// no public name.
func (d Decision) Public() string {
	if d.by == nil {
		return ""
	}
	return d.by.Public
}

// Action returns the deciding verdict's action; log without one.
func (d Decision) Action() verdict.Action {
	if d.by == nil {
		return verdict.ActLog
	}
	return d.by.Action
}

// Limit returns the rule's limit; 0 when it has none, as a block by command.
func (d Decision) Limit() event.Decimal {
	if d.by == nil {
		return 0
	}
	return d.by.Limit
}

// Until returns when the deciding verdict ends, or a throttled request's turn comes; the zero time
// without a deciding verdict.
func (d Decision) Until() time.Time {
	if d.until == 0 {
		return time.Time{}
	}
	return d.until.Time()
}

// At returns the time for which the check was answered.
func (d Decision) At() time.Time { return d.at.Time() }

// Forever reports whether the check is denied by what has no end: a verdict that a command ends, or a limit that the
// request is larger than.
func (d Decision) Forever() bool { return d.until >= event.Forever }

// RetryAfter returns the time until Until in whole seconds, rounded up; 0 when the check was allowed,
// or is Unavailable, or is Forever.
func (d Decision) RetryAfter() time.Duration { return time.Duration(d.seconds()) * time.Second }

func (d Decision) seconds() int64 {
	if d.Allowed || d.Unavailable() {
		return 0
	}
	if d.Forever() {
		return 0
	}
	left := d.until - d.at
	return int64(max(left-1, 0)/event.Second) + 1
}

// Unavailable reports whether the check is denied only because the table is stale and fails closed:
// no verdict denies it, the fault is the service's, and its end is unknown. In HTTP it is 503
// without Retry-After.
func (d Decision) Unavailable() bool { return d.by == &unavailable }
