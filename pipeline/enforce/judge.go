package enforce

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/index"
	"github.com/tallygate/tallygate/verdict"
)

// judged is the strongest of the verdicts looked at so far.
type judged struct {
	class *index.Class // nil: none decides
	until event.Micros
	near  bool // one begins or ends so soon that the coarse clock cannot decide

	shadows bool // there is a block in shadow mode

	enforces func(rule string) bool // whether a rule's verdicts count; nil: all do
}

// judge looks at the verdicts of a record.
func (j *judged) judge(r index.Record, at, near event.Micros, api string) {
	r.Each(func(c *index.Class, since, until event.Micros) {
		if c.Shadow {
			j.shadows = true
		}
		if !c.Decides || !c.Covers(api) || j.enforces != nil && !j.enforces(c.Verdict.Rule) {
			return
		}
		if since <= at && at < until && j.weaker(c, until) {
			j.class, j.until = c, until
		}
		if until > at && until <= at+near || since > at && since <= at+near {
			j.near = true
		}
	})
}

// weaker reports whether the strongest so far is weaker than this verdict.
func (j *judged) weaker(c *index.Class, until event.Micros) bool {
	return j.class == nil || verdict.CompareUntil(&c.Verdict, until, &j.class.Verdict, j.until) < 0
}

func (j *judged) decision(at event.Micros) Decision {
	if j.class == nil {
		return Decision{Allowed: true, at: at}
	}
	return Decision{Allowed: j.class.Logs, until: j.until, at: at, by: &j.class.Verdict}
}
