package enforce

import (
	"slices"

	"github.com/tallygate/tallygate/pipeline/enforce/internal/index"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Decision is the answer to a check. It is four words, so that it is returned in registers: of a check that finds nothing, as
// nearly all do, a larger one would be half the time.
type Decision struct {
	Allowed bool             // false when a verdict denies; one whose action is log doesn't
	Until   event.Micros     // when the verdict ends that decides; 0 when none does
	At      event.Micros     // the moment the check was judged at
	by      *verdict.Verdict // nil when none decides; without a key and times
}

// Rule returns the rule of the verdict that decides; "" when none does. It is for logs and metrics: those who are denied are told
// Public, since a rule's own name may say what it looks for.
func (d Decision) Rule() string {
	if d.by == nil {
		return ""
	}
	return d.by.Rule
}

// Public returns what those who are denied are told the rule is called; "" when none decides, and when the rule has no
// public name.
func (d Decision) Public() string {
	if d.by == nil {
		return ""
	}
	return d.by.Public
}

// Action returns what the verdict that decides says to do; log when none decides.
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

// RetryAfter returns in how many whole seconds, rounded up, the verdict ends; 0 when the check was allowed, and when nobody knows:
// see Unavailable.
func (d Decision) RetryAfter() int64 {
	if d.Allowed || d.Unavailable() {
		return 0
	}
	left := d.Until - d.At
	return int64(max(left-1, 0)/event.Second) + 1
}

// Dimensions that have names of their own. Others are attributes: attrs.NAME.
const (
	dimUID = "uid"
	dimIP  = "ip"
	dimNet = "ip/64"
)

// nearly is how near to a verdict's beginning or end the coarse clock is not asked, but the system's.
const nearly = event.Second

// Check answers whether the user may use the API now. Verdicts on keys with other dimensions than
// uid don't count: CheckDims takes those.
//
// It is checkRare for what nearly all checks are, written out: see package index.
func (t *Table) Check(api, uid string) Decision {
	user := index.UserOf(uid)
	if t.mode.Load() != 0 || !user.Plain(uid) {
		return t.checkRare(api, uid)
	}
	v := t.index.View()
	for p := v.Start(user); ; p = v.Next(p) {
		for slots := p.Slots(user); slots != 0; slots = slots.Rest() {
			rec, ok := t.index.At(v, p, slots)
			if !ok {
				return t.checkRare(api, uid)
			}
			if !rec.Is(uid, user) {
				if rec.Wide() {
					return t.checkRare(api, uid)
				}
				continue
			}
			c, until, own, ok := v.Only(rec)
			if !ok {
				return t.checkRare(api, uid)
			}
			duration := c.Duration
			if own {
				duration = rec.Duration(len(uid))
			}
			at, near := t.coarse()
			if until-duration > at || at+near >= until || !c.Decides || !c.CoversSurely(api) && !c.Covers(api) {
				return t.checkRare(api, uid)
			}
			return Decision{Allowed: c.Logs, Until: until, At: at, by: &c.Verdict}
		}
		if p.Last() {
			return Decision{Allowed: true, At: t.Now()}
		}
	}
}

// checkRare is Check for what is rare: several verdicts, one that doesn't cover the API, the last second of one, a uid that is very long or
// not ASCII, and doubt.
func (t *Table) checkRare(api, uid string) Decision {
	uid = event.CanonicalUID(uid)
	if mode := t.mode.Load(); mode != 0 {
		return t.checkUnusual(mode, api, []event.Dim{{Name: dimUID, Value: uid}})
	}
	at, near := t.coarse()
	r, found := t.index.User(uid)
	if !found {
		return Decision{Allowed: true, At: at}
	}
	var so judged
	if so.judge(r, at, near, api); so.near {
		at, so = now(), judged{}
		so.judge(r, at, 0, api)
	}
	return so.decision(at)
}

// judged is the strongest of the verdicts that were looked at.
type judged struct {
	class *index.Class // nil: none decides
	until event.Micros
	near  bool // one of them begins or ends so soon that the coarse clock cannot tell

	enforces func(rule string) bool // whether a rule's verdicts count; nil: all do
}

// judge adds to so the verdicts of a record.
func (so *judged) judge(r index.Record, at, near event.Micros, api string) {
	r.Each(func(c *index.Class, since, until event.Micros) {
		if !c.Decides || !c.Covers(api) || so.enforces != nil && !so.enforces(c.Verdict.Rule) {
			return
		}
		if since <= at && at < until && so.yields(c, until) {
			so.class, so.until = c, until
		}
		if until > at && until <= at+near || since > at && since <= at+near {
			so.near = true
		}
	})
}

// yields reports whether a verdict is stronger than the strongest so far.
func (so *judged) yields(c *index.Class, until event.Micros) bool {
	return so.class == nil || verdict.CompareUntil(&c.Verdict, until, &so.class.Verdict, so.until) < 0
}

func (so *judged) decision(at event.Micros) Decision {
	if so.class == nil {
		return Decision{Allowed: true, At: at}
	}
	return Decision{Allowed: so.class.Logs, Until: so.until, At: at, by: &so.class.Verdict}
}

// CheckAt is what the table's verdicts say at a moment, in doubt or not, and also while enforcement is off.
func (t *Table) CheckAt(at event.Micros, api, uid string) Decision {
	return t.CheckDimsAt(at, api, []event.Dim{{Name: dimUID, Value: uid}})
}

// CheckDims answers whether someone with these dimensions (uid, ip, attrs.NAME, each at most once)
// may use the API now. ip/64 follows from ip.
func (t *Table) CheckDims(api string, dims []event.Dim) Decision {
	if mode := t.mode.Load(); mode != 0 {
		return t.checkUnusual(mode, api, slices.Clone(dims))
	}
	var so judged
	at, near := t.coarse()
	t.index.Each(dims, func(r index.Record) bool {
		if near > 0 {
			if so.judge(r, at, near, api); so.class == nil && !so.near {
				return true
			}
			at, near, so = now(), 0, judged{} // whoever is denied can wait for the system's clock, and the coarse one may have stood still
		}
		so.judge(r, at, 0, api)
		return true
	})
	return so.decision(at)
}

// CheckDimsAt is CheckAt for several dimensions.
func (t *Table) CheckDimsAt(at event.Micros, api string, dims []event.Dim) Decision {
	var so judged
	t.index.Each(dims, func(r index.Record) bool {
		so.judge(r, at, 0, api)
		return true
	})
	return so.decision(at)
}

// MayDeny reports whether CheckDims could deny these dimensions for any API. It saves middlewares the
// name of the API for keys without a verdict, as nearly all are.
func (t *Table) MayDeny(dims []event.Dim) (found bool) {
	if t.mode.Load() != 0 {
		return true
	}
	t.index.Each(dims, func(index.Record) bool {
		found = true
		return false
	})
	return found
}
