package admit

import (
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/internal/base/logonce"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/rules"
)

// Refused counts the requests that were refused for what they ask, by reason. All of these are denials,
// and none is in doubt: a caller could otherwise choose that Config.OnDoubt decides.
type Refused struct {
	Ended       uint64 // Request.ID names a permit that has ended, or whose action was counted
	Taken       uint64 // Request.ID names the permit of another action
	Uncountable uint64 // a limit cannot count the request
}

// refusal is a reason of Refused.
type refusal uint8

// The reasons.
const (
	ended refusal = iota
	taken
	uncountable
	refusals
)

type refused [refusals]struct {
	n    atomic.Uint64
	line logonce.Line
}

func (r *refused) stats() Refused {
	return Refused{Ended: r[ended].n.Load(), Taken: r[taken].n.Load(), Uncountable: r[uncountable].n.Load()}
}

// refuse denies a request for what it asks: asking the same again is of no use.
func (t *attempt) refuse(by *rules.Limit, key string, of refusal, why string) *Permit {
	one := &t.a.refused[of]
	one.n.Add(1)
	if left, due := one.line.Due(); due {
		t.a.cfg.Logger.Warn("a request asks a strict limit for what cannot be granted, and is denied", "rule", by.Rule.Name, "reason", why, "left_out", left)
	}
	return &Permit{a: t.a, By: by, Key: key, Reason: why, Numbers: Numbers{Limited: true, RetryAfter: Never}}
}

// spent refuses an id that has ended. One that was given back may be asked for again soon; one whose action
// was counted names that action.
func (t *attempt) spent(one *ask, a *protocol.Answer) *Permit {
	p := t.refuse(one.by[0], one.Key, ended, "a permit with this id has ended")
	if left := a.RetryAt - a.Clock; left >= 0 && left <= protocol.SpentFor {
		p.Numbers.RetryAfter = left.Duration() + time.Microsecond
	}
	return p
}
