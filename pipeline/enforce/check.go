package enforce

import (
	"slices"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/index"
)

// Check reports whether the user may use the API now. It ignores verdicts on keys with other
// dimensions than uid, api and all: CheckDims includes them.
//
// It is checkSlow for the usual case, written out: see package index.
func (t *Table) Check(api API, uid string) Decision {
	user, n := index.UserOf(uid), len(uid)
	if t.mode.bits.Load() != 0 || !user.Plain(uid) {
		return t.checkSlow(string(api), uid)
	}
	v := t.index.View()
	if v.OfUsers() {
		return t.checkSlow(string(api), uid)
	}
	for p := v.Start(user); ; p = v.Next(p) {
		for slots := p.Slots(user); slots != 0; slots = slots.Rest() {
			rec, ok := t.index.At(v, p, slots)
			if !ok {
				return t.checkSlow(string(api), uid)
			}
			if !rec.Fits(n) {
				if rec.Wide() {
					return t.checkSlow(string(api), uid)
				}
				continue
			}
			if n >= 8 && n <= 16 {
				if !rec.Is(n, user) {
					continue
				}
			} else if rec.UID(n) != uid {
				continue
			}
			c, until, differs, ok := v.Only(rec)
			if !ok {
				return t.checkSlow(string(api), uid)
			}
			duration := c.Duration
			if differs {
				duration = rec.Duration(n)
			}
			at, near := t.clock.read()
			if until-duration > at || at+near >= until || !c.Decides || !c.CoversSurely(string(api)) && !c.Covers(string(api)) {
				return t.checkSlow(string(api), uid)
			}
			return Decision{Allowed: c.Logs, until: until, at: at, by: &c.Verdict}
		}
		if p.Last() {
			return Decision{Allowed: true, at: t.clock.now()}
		}
	}
}

// checkSlow is Check for rare cases: several verdicts, one that doesn't cover the API, the last
// second of one, a uid that is very long or not ASCII, verdicts on keys of APIs and of all, and every
// mode but 0.
func (t *Table) checkSlow(api, uid string) Decision {
	if t.index.View().OfUsers() {
		return t.CheckDims(api, []event.Dim{{Name: dimUID, Value: uid}})
	}
	uid = event.CanonicalUID(uid)
	if mode := t.mode.bits.Load(); mode != 0 {
		return t.checkInMode(mode, api, []event.Dim{{Name: dimUID, Value: uid}})
	}
	at, near := t.clock.read()
	r, found := t.index.User(uid)
	if !found {
		return Decision{Allowed: true, at: at}
	}
	var j judged
	if j.judge(r, at, near, api); j.near {
		at, j = now(), judged{}
		j.judge(r, at, 0, api)
	}
	d := j.decision(at)
	if j.shadows && d.Allowed {
		countShadowsOf(r, at, api, nil)
	}
	return d
}

// checkInMode is a check while the table is stale or enforcement is off.
func (t *Table) checkInMode(mode uint32, api string, dims []event.Dim) Decision {
	at := t.clock.system()
	if mode&modeOff != 0 {
		return Decision{Allowed: true, at: at}
	}
	j := judged{enforces: t.policy.enforces}
	t.index.Each(api, dims, func(r index.Record) bool {
		j.judge(r, at, 0, api)
		return true
	})
	d := j.decision(at)
	if !d.Allowed {
		return d
	}
	if d = t.policy.deny(d, time.Since(t.mode.started), api, dims); j.shadows && d.Allowed {
		countShadows(&t.index, at, api, dims, t.policy.enforces)
	}
	return d
}

// CheckAt decides by the table's verdicts at a moment, also while the table is stale or enforcement is off.
func (t *Table) CheckAt(at event.Micros, api API, uid string) Decision {
	return t.CheckDimsAt(at, string(api), []event.Dim{{Name: dimUID, Value: uid}})
}

// CheckDims reports whether someone with these dimensions may use the API now. They are uid, ip and
// attrs.NAME, each at most once; networks such as ip/64 follow from ip. Verdicts on keys of the API,
// and on all=true, count without any.
func (t *Table) CheckDims(api string, dims []event.Dim) Decision {
	if mode := t.mode.bits.Load(); mode != 0 {
		return t.checkInMode(mode, api, slices.Clone(dims))
	}
	var j judged
	at, near := t.clock.read()
	t.index.Each(api, dims, func(r index.Record) bool {
		if near > 0 {
			if j.judge(r, at, near, api); j.class == nil && !j.near {
				return true
			}
			at, near, j = now(), 0, judged{shadows: j.shadows} // a denial can afford the system's clock, and the coarse one may be late
		}
		j.judge(r, at, 0, api)
		return true
	})
	d := j.decision(at)
	if j.shadows && d.Allowed {
		countShadows(&t.index, at, api, dims, nil)
	}
	return d
}

// CheckDimsAt is CheckAt for several dimensions.
func (t *Table) CheckDimsAt(at event.Micros, api string, dims []event.Dim) Decision {
	var j judged
	t.index.Each(api, dims, func(r index.Record) bool {
		j.judge(r, at, 0, api)
		return true
	})
	return j.decision(at)
}

// MayDeny reports whether CheckDims could deny these dimensions for any API. With it a middleware
// need not name the API of keys without a verdict, as nearly all are.
func (t *Table) MayDeny(dims []event.Dim) (found bool) {
	if t.mode.bits.Load() != 0 || t.index.View().OfAPI() {
		return true
	}
	t.index.Each("", dims, func(index.Record) bool {
		found = true
		return false
	})
	return found
}
