package enforce

import (
	"slices"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Decision is the answer to a check. It is four words, so that it is returned in registers: of a check that finds nothing, as
// nearly all do, a larger one would be half the time.
type Decision struct {
	Allowed bool         // false when a verdict denies; one whose action is log doesn't
	Until   event.Micros // when the verdict ends that decides; 0 when none does
	At      event.Micros // the moment the check was judged at
	by      *reason      // nil when none decides
}

// reason is why a check is denied, or logged.
type reason struct {
	rule   string
	public string
	action verdict.Action
	limit  event.Decimal
}

// Rule returns the rule of the verdict that decides; "" when none does. It is for logs and metrics: those who are denied are told
// Public, since a rule's own name may say what it looks for.
func (d Decision) Rule() string {
	if d.by == nil {
		return ""
	}
	return d.by.rule
}

// Public returns what those who are denied are told the rule is called; "" when none decides, and when the rule has no
// public name.
func (d Decision) Public() string {
	if d.by == nil {
		return ""
	}
	return d.by.public
}

// Action returns what the verdict that decides says to do; log when none decides.
func (d Decision) Action() verdict.Action {
	if d.by == nil {
		return verdict.ActLog
	}
	return d.by.action
}

// Limit returns the rule's limit; 0 when it has none, as a block by command.
func (d Decision) Limit() event.Decimal {
	if d.by == nil {
		return 0
	}
	return d.by.limit
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

// nearly is how near to a verdict's beginning or end the coarse clock is not asked, but the system's.
const nearly = event.Second

// Check answers whether the user may use the API now. Verdicts on keys with other dimensions than
// uid don't count: CheckDims takes those.
//
// It is find and judge for what nearly all checks are, written out.
func (t *Table) Check(api, uid string) Decision {
	if t.mode.Load() != 0 {
		return t.checkOne(api, uid)
	}
	v := t.view.Load()
	hash, first, last := hashWords(uid)
	n := len(uid)
	if (first|last)&notASCII != 0 || n > 16 && !plain(uid) {
		return t.checkOne(api, uid)
	}
	tags := tagOf(hash) * lowBytes
	for i, left := v.bucketOf(hash), len(v.buckets); ; {
		b := &v.buckets[i]
		word := b.tags.Load()
		for m := candidates(word, tags); m != 0; m &= m - 1 {
			ref := b.refs[slotOf(m)].Load()
			if t.view.Load() != v {
				return t.checkOne(api, uid)
			}
			rec := v.at(ref)
			if rec.uint16(0) != uint16(n)<<8|shapeUID || n > 255 {
				if rec.uint16(0)&0xff == wide {
					return t.checkOne(api, uid)
				}
				continue
			}
			if n >= 8 && n <= 16 {
				if rec.uint64(keyAt) != first || rec.uint64(keyAt+n-8) != last {
					continue
				}
			} else if rec.text(keyAt, n) != uid {
				continue
			}
			head, until := rec.uint16(2), event.Micros(rec.uint64(4))
			if head&flagMore != 0 || head>>classShift == wideClass {
				return t.checkOne(api, uid)
			}
			at, near := t.coarse()
			c := v.classes[head>>classShift]
			duration := c.duration
			if head&flagDuration != 0 {
				own, _ := varint(v.record(ref)[keyAt+n:])
				duration = event.Micros(own)
			}
			if until-duration > at || at+near >= until || !c.decides || (len(api) < 8 || load64(api, 0)&c.mask != c.word) && !c.covers(api) {
				return t.checkOne(api, uid)
			}
			return Decision{Allowed: c.allows, Until: until, At: at, by: &c.reason}
		}
		if left--; word&overflowed == 0 || left == 0 {
			return Decision{Allowed: true, At: t.Now()}
		}
		if i++; i == uint64(len(v.buckets)) {
			i = 0
		}
	}
}

// checkOne is Check for what is rare: several verdicts, one that doesn't cover the API, the last second of one, a uid that is very long or
// not ASCII, and doubt.
func (t *Table) checkOne(api, uid string) Decision {
	uid = event.CanonicalUID(uid)
	if mode := t.mode.Load(); mode != 0 {
		return t.checkUnusual(mode, api, []event.Dim{{Name: dimUID, Value: uid}})
	}
	q := query{dims: []event.Dim{{Name: dimUID, Value: uid}}}
	at, near := t.coarse()
	for {
		v := t.view.Load()
		r, ok := t.find(v, v.shapes[shapeUID], &q)
		if !ok {
			continue
		}
		if r.key == nil {
			return Decision{Allowed: true, At: at}
		}
		var so judged
		if r.judge(&so, v.classes, at, near, api); so.near {
			at, so = now(), judged{}
			r.judge(&so, v.classes, at, 0, api)
		}
		return so.decision(at)
	}
}

// judged is the strongest of the verdicts that were looked at.
type judged struct {
	class *class // nil: none decides
	until event.Micros
	near  bool // one of them begins or ends so soon that the coarse clock cannot tell
}

// judge adds to so the verdicts of a record.
func (r *record) judge(so *judged, classes []*class, at, near event.Micros, api string) {
	head, tail := r.head, r.tail
	for {
		h, b := readHead(head, tail)
		c := classes[h.class]
		duration := int64(c.duration)
		if h.flags&flagDuration != 0 {
			duration, _ = varint(b)
		}
		if c.decides && c.covers(api) {
			since := h.until - event.Micros(duration)
			if since <= at && at < h.until && so.yields(c, h.until) {
				so.class, so.until = c, h.until
			}
			if h.until > at && h.until <= at+near || since > at && since <= at+near {
				so.near = true
			}
		}
		if h.flags&flagMore == 0 {
			return
		}
		b = skipTail(h.flags, b)
		head, tail = b[:headSize], b[headSize:]
	}
}

// yields reports whether a verdict is stronger than the strongest so far.
func (so *judged) yields(c *class, until event.Micros) bool {
	return so.class == nil || verdict.CompareUntil(&c.verdict, until, &so.class.verdict, so.until) < 0
}

func (so *judged) decision(at event.Micros) Decision {
	if so.class == nil {
		return Decision{Allowed: true, At: at}
	}
	return Decision{Allowed: so.class.allows, Until: so.until, At: at, by: &so.class.reason}
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
	at, near := t.coarse()
	return t.checkDims(at, near, api, dims)
}

func (t *Table) checkDims(at, near event.Micros, api string, dims []event.Dim) Decision {
	so := t.judgeDims(at, near, api, dims)
	if so.near || so.class != nil { // whoever is denied can wait for the system's clock, and the coarse one may have stood still
		at = now()
		so = t.judgeDims(at, 0, api, dims)
	}
	return so.decision(at)
}

// CheckDimsAt is CheckAt for several dimensions.
func (t *Table) CheckDimsAt(at event.Micros, api string, dims []event.Dim) Decision {
	so := t.judgeDims(at, 0, api, dims)
	return so.decision(at)
}

func (t *Table) judgeDims(at, near event.Micros, api string, dims []event.Dim) (so judged) {
	t.each(dims, func(v *view, _ *shape, r record) bool {
		r.judge(&so, v.classes, at, near, api)
		return true
	})
	return so
}

// known reports whether a check of these dimensions could be anything but allowed, whatever the API.
func (t *Table) known(dims []event.Dim) (found bool) {
	if t.mode.Load() != 0 {
		return true
	}
	t.each(dims, func(*view, *shape, record) bool {
		found = true
		return false
	})
	return found
}

// each calls do with the verdicts on each key of these dimensions, until it returns false. When the view changes meanwhile it
// begins again, and do may see a key twice.
func (t *Table) each(dims []event.Dim, do func(v *view, s *shape, r record) bool) {
	if len(dims) == 0 {
		return
	}
	dims = canonical(dims)
	q := query{dims: dims, addr: new(address)}
	v := t.view.Load()
	for i := 0; i < len(v.shapes); i++ {
		s := v.shapes[i]
		if s == nil {
			continue
		}
		r, ok := t.find(v, s, &q)
		switch {
		case !ok:
			v, i = t.view.Load(), -1
		case r.key != nil && !do(v, s, r):
			return
		}
	}
}
