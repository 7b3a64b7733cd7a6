package rules

import (
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
	"github.com/tallygate/tallygate/windows"
)

// book is one key stepped by the sentences on verdicts, one after the other. It counts with the
// windows themselves, which have oracles of their own, and keeps the rest as plain values.
type book struct {
	set    *Set
	latest event.Micros
	ids    []modelID
	limits map[*Limit]*bookLimit
	above  []Above // of the last step
	left   []Left  // the same
}

type bookLimit struct {
	*Limit
	window []byte
	tier   int
	told   event.Decimal // the limit that the latest event told
	toldAt event.Micros  // when a denied request's did
	reset  event.Micros  // what happened up to then counts no more; NoTime: nothing
	warned map[string]event.Micros
	kept   []bookEvent
	slots  [2]bookVerdict // the live one, and the candidate's
}

// bookEvent is an event that may be taken back.
type bookEvent struct {
	id              uint64
	at              event.Micros
	amount, cost    event.Decimal
	takenAltogether event.Decimal
}

// bookVerdict is the last verdict published.
type bookVerdict struct {
	on           bool
	since, until event.Micros
	limit        event.Decimal // that the key had at the event before
	shown        event.Decimal // the limit that was published
	falls        int
	lastUntil    event.Micros
}

// bookChange holds the fields of a verdict that both have.
type bookChange struct {
	Rule, Step   string
	State        verdict.State
	Mode         verdict.Mode
	Count, Limit event.Decimal
	Since, Until event.Micros
}

func newBook(s *Set) *book {
	return &book{set: s, latest: event.NoTime, limits: map[*Limit]*bookLimit{}}
}

func (b *book) limit(l *Limit) *bookLimit {
	if b.limits[l] == nil {
		b.limits[l] = &bookLimit{Limit: l, toldAt: event.NoTime, reset: event.NoTime, warned: map[string]event.Micros{}}
	}
	return b.limits[l]
}

func (b *book) step(in Input, exempt func(*Limit, event.Micros) bool) (repeat, unknown bool, late int, changes []bookChange) {
	b.above, b.left = nil, nil
	if in.Hits[0].Tells {
		return false, false, 0, b.tell(in, exempt)
	}
	latest := max(b.latest, in.At)
	for _, r := range b.ids[max(0, len(b.ids)-b.set.RecentIDs):] {
		if in.ID != "" && r.id == in.ID && latest-r.stamp < b.set.RecentFor {
			return true, false, 0, nil
		}
	}
	if len(in.Hits) > 0 && in.Hits[0].Refund && !slices.ContainsFunc(in.Hits, func(h Hit) bool { return b.limit(h.Limit).takes(&h, in.At) > 0 }) {
		known := slices.ContainsFunc(in.Hits, func(h Hit) bool { return b.limit(h.Limit).named(&h, in.At) != nil })
		return false, !known, 0, nil
	}
	if in.ID != "" {
		b.ids = append(b.ids, modelID{in.ID, latest})
	}
	b.latest = latest
	for _, hit := range in.Hits {
		l := b.limit(hit.Limit)
		added, adds, counted, took, cut := windows.Added{}, hit.Amount > 0, hit.Amount > 0, false, false
		was, told := l.Window.Latest(l.window), l.live()
		if len(l.window) == 0 || in.At >= l.leftUntil(was) {
			told = Unlimited
		}
		switch {
		case hit.Refund:
			n := l.takes(&hit, in.At)
			if n == 0 {
				continue
			}
			e := l.named(&hit, in.At)
			e.takenAltogether += n
			window, _ := l.Window.Add(slices.Clone(l.window), in.At, 0)
			l.window = l.Window.Take(window, e.at, n)
			took = true
		case hit.Reset:
			if window, moved, until := l.Window.Forget(slices.Clone(l.window), in.At); in.At > l.reset && !moved.Late {
				l.window, added.Ended = window, moved.Ended
				l.kept = slices.DeleteFunc(l.kept, func(e bookEvent) bool { return e.at < until })
				l.reset, took = in.At, true
			}
			if !took {
				continue
			}
		case in.At <= l.reset:
			late++
			continue
		case l.Window.Distinct:
			l.window, added = l.Window.AddValue(slices.Clone(l.window), in.At, hit.Value)
			adds, counted = !added.Known, true
		default:
			endless := l.Window
			endless.Most = 0
			_, uncut := endless.Add(slices.Clone(l.window), in.At, hit.Amount)
			l.window, added = l.Window.Add(slices.Clone(l.window), in.At, hit.Amount)
			cut = uncut.Count > added.Count
		}
		if added.Late {
			late++
			continue
		}
		if counts := !hit.Refund && !hit.Reset; counts && in.At >= max(was, l.toldAt) {
			l.tier, l.told, l.toldAt = hit.Tier, hit.Told, event.NoTime
		}
		if !hit.Refund && !hit.Reset && l.Rule.Refunds && in.ID != "" && l.Window.Holds(l.window, in.At) { // what opened no window is in none
			l.kept = append(l.kept, bookEvent{hashOfID(in.ID), in.At, hit.Amount, hit.Cost, 0})
		}
		spared := exempt(hit.Limit, l.latest(in.At, hit.Reset))
		changes = append(changes, l.verdicts(in, added, adds, counted, took, hit.Reset, spared)...)
		if is := l.live(); counted || took || told != Unlimited && is != told {
			b.left = append(b.left, l.leaves(&in, added, told, hit.Reset, spared)...)
		}
		if adds && !spared {
			b.above = append(b.above, l.isAbove(&in, added, cut)...)
		}
	}
	return false, false, late, changes
}

// named finds the event that a refund names, if its window is still held at the refund's time.
func (l *bookLimit) named(hit *Hit, at event.Micros) *bookEvent {
	window, _ := l.Window.Add(slices.Clone(l.window), at, 0)
	if from, to := l.Window.Bounds(window, l.Window.Latest(window)); l.Window.Kind == windows.FromFirst && at >= to+min(to-from, l.Window.Lateness) {
		return nil
	}
	for i := len(l.kept) - 1; i >= max(0, len(l.kept)-windows.Remembered); i-- {
		if e := &l.kept[i]; e.id == hit.Value && l.Window.Holds(window, e.at) {
			return e
		}
	}
	return nil
}

// takes returns the amount that a refund takes back.
func (l *bookLimit) takes(hit *Hit, at event.Micros) event.Decimal {
	if e := l.named(hit, at); e != nil {
		return e.back(hit.Cost, l.Rule.Count == CountEvents)
	}
	return 0
}

// back is cost times what one unit of the event's cost counted, in whole numbers for counts, all
// of them together at most what it counted.
func (e *bookEvent) back(cost event.Decimal, whole bool) event.Decimal {
	if e.cost == 0 {
		return 0
	}
	// The tests' numbers are small.
	n := event.Decimal(int64(e.amount) / 1000 * int64(cost) / int64(e.cost) * 1000)
	n = min(n, e.amount-e.takenAltogether)
	if whole {
		n = n / event.One * event.One
	}
	return n
}

// live is the key's limit.
func (l *bookLimit) live() event.Decimal {
	switch {
	case l.tier > len(l.Tiers):
		return l.told
	case l.tier > 0:
		return l.Tiers[l.tier-1].Limit
	}
	return l.Limit.threshold()
}

func (l *bookLimit) verdicts(in Input, added windows.Added, adds, counted, took, reset, exempt bool) (changes []bookChange) {
	t, then := l.Window.Latest(l.window), &l.Rule.Then
	if reset { // it may be behind a window that begins with an event
		t = max(t, in.At)
	}
	live := l.live()
	fell := false
	for i, limit := range []event.Decimal{live, l.Candidate} {
		if i == 1 && !l.Tries {
			continue
		}
		v := &l.slots[i]
		count := l.Window.Count(l.window)
		change := bookChange{Rule: l.Name, Mode: l.Rule.Mode, Count: count, Limit: limit}
		if i == 1 {
			change.Rule, change.Mode = l.Name+"/candidate", verdict.Shadow
		}
		if l.Shadow {
			change.Mode = verdict.Shadow
		}
		was := *v
		switch {
		case v.on && t < v.until:
			if l.inForce(v, limit, in.At, t, counted, took, exempt); reset && l.Rule.reset.clear && !l.isOver(count, limit) {
				v.on = false
			}
			if limit == Unlimited { // extended: by which it was issued
				change.Limit = v.shown
			}
		case then.None, !adds, exempt, limit == Unlimited:
			v.on = false
		default:
			over := l.isOver(count, limit)
			if added.Ended && !(then.UntilReset && l.isCurrent(in.At, t)) { // only the window that it went into is judged
				change.Count, over = added.Count, !then.UntilReset && l.isOver(added.Count, limit)
			}
			if v.on = over; over {
				l.fall(v, limit, t)
				fell = fell || i == 0
			}
		}
		switch {
		case v.on && (v.since != was.since || v.until != was.until || !was.on):
			change.Since, change.Until, v.shown = v.since, v.until, change.Limit
			changes = append(changes, change)
		case was.on && !v.on && t < was.until: // cleared
			if change.State, change.Since, change.Until = verdict.Clear, t, t; limit == Unlimited {
				change.Limit = was.limit
			}
			v.lastUntil = t
			changes = append(changes, change)
		}
	}
	if fell && then.Reset {
		ended := added.Ended
		from := l.Window.Since(l.window) // of a window that begins with an event: what came late into it is in it, too
		both := ended && l.isCurrent(in.At, t)
		if l.window = l.Window.Empty(slices.Clone(l.window), ended); both {
			l.window = l.Window.Empty(l.window, false)
		}
		l.kept = slices.DeleteFunc(l.kept, func(e bookEvent) bool { // what was emptied can't be taken back
			return l.Window.Kind == windows.Sliding || both || (e.at < from) == ended
		})
	}
	if adds && (!added.Ended || l.isCurrent(in.At, t)) && !exempt && !l.slots[0].on && live > 0 {
		changes = append(changes, l.notices(l.Window.Count(l.window), live, t)...)
	}
	return changes
}

// latest is the latest time that was counted, or that of a reset behind it.
func (l *bookLimit) latest(at event.Micros, reset bool) event.Micros {
	if len(l.window) == 0 || reset {
		return max(at, l.Window.Latest(l.window))
	}
	return l.Window.Latest(l.window)
}

// leaves is 'quota': what an event leaves of the window that holds the key's latest time.
func (l *bookLimit) leaves(in *Input, added windows.Added, told event.Decimal, reset, spared bool) []Left {
	t, limit := l.latest(in.At, reset), l.live()
	if !l.Quota || l.Rule.Mode == verdict.Shadow || spared || max(limit, told) == Unlimited || added.Ended && !l.isCurrent(in.At, t) {
		return nil
	}
	if limit == Unlimited {
		return []Left{{Limit: l.Limit, Since: t, Until: t}}
	}
	return []Left{{Limit: l.Limit, Of: limit, Count: l.Window.Count(l.window), Since: t, Until: l.leftUntil(t)}}
}

// leftUntil returns the moment at which the window ends, or nothing of the count is left.
func (l *bookLimit) leftUntil(t event.Micros) event.Micros {
	if l.Window.Kind == windows.Sliding {
		return t + l.Window.Per
	}
	_, until := l.Window.Bounds(l.window, t)
	return until
}

// isAbove is an event that a limit enforced before it would have kept out.
func (l *bookLimit) isAbove(in *Input, added windows.Added, cut bool) []Above {
	limit := l.live()
	tried := strings.HasSuffix(l.Name, "/candidate")
	if limit == Unlimited || l.Rule.Then.None && l.Rule.Strict == nil || tried || added.Count <= limit && !cut {
		return nil
	}
	a := Above{Limit: l.Limit, Shadow: l.Rule.Mode == verdict.Shadow, Since: event.NoTime}
	if v := &l.slots[0]; v.on && l.Window.Latest(l.window) < v.until && (!added.Ended || l.isCurrent(in.At, l.Window.Latest(l.window))) {
		a.Since = max(0, in.At-v.since)
	}
	return []Above{a}
}

// isCurrent tells whether an event that went into an ended window is in one, too, that holds t: only hopping
// windows overlap. A reset leaves their bounds as they are.
func (l *bookLimit) isCurrent(at, t event.Micros) bool {
	hop := l.Window.Every
	if l.Window.Kind != windows.Hopping {
		return false
	}
	for start := at - ((at-l.Window.Offset)%hop+hop)%hop; start > at-l.Window.Per; start -= hop {
		if start <= t && t < start+l.Window.Per {
			return true
		}
	}
	return false
}

// isOver is 'reached' or 'exceeded'.
func (l *bookLimit) isOver(count, limit event.Decimal) bool {
	reached := l.Rule.Then.UntilReset
	if l.Rule.Then.At != AtDefault {
		reached = l.Rule.Then.At == AtReached
	}
	if l.Window.Kind == windows.Bucket {
		tokens := limit - count
		return tokens < 0 || reached && tokens < event.One
	}
	return count > limit || reached && count == limit && limit > 0 // 0 is not reached by nothing
}

// inForce goes on with a verdict that is in force at t.
func (l *bookLimit) inForce(v *bookVerdict, limit event.Decimal, at, t event.Micros, counted, took, exempt bool) {
	then := &l.Rule.Then
	end := v.until
	grain := l.Grain
	switch {
	case exempt:
		v.on = false
		return
	case then.UntilReset && limit == Unlimited:
		end = t
	case then.UntilReset:
		end = l.below(limit)
	case then.Extend && counted:
		step := then.Steps[min(max(v.falls, 1), len(then.Steps))-1]
		end, grain = max(end, min(at+step, event.Forever)), max(step/60, 100*event.Millisecond)
	}
	switch {
	case end > v.until:
		for l.Window.Kind == windows.Bucket && end-t >= 16*grain { // rounded by at most an eighth of what is ahead
			grain *= 2
		}
		v.until = (end + grain - 1) / grain * grain
		v.lastUntil = v.until
	case end < v.until && (took || v.limit != limit):
		if v.until = end; end <= t {
			v.on = false
		}
		v.lastUntil = v.until
	}
	if limit != Unlimited {
		v.limit = limit
	}
}

// below is the end of a quota: of one with a limit of 0, when the window holds nothing.
func (l *bookLimit) below(limit event.Decimal) event.Micros {
	const least = event.Decimal(1)
	if limit == 0 {
		limit = least
	}
	return l.Window.Below(l.window, limit)
}

// fall is a new verdict.
func (l *bookLimit) fall(v *bookVerdict, limit event.Decimal, t event.Micros) {
	then := &l.Rule.Then
	for idle := t - v.lastUntil; then.Escalates && v.falls > 0 && idle >= then.Forget; idle -= then.Forget {
		if v.falls = min(v.falls, len(then.Steps)) - 1; !then.ByStep {
			v.falls = 0
		}
	}
	v.falls++
	v.since, v.limit = t, limit
	if then.UntilReset {
		v.until = l.below(limit)
	} else {
		n := 1
		if then.Escalates {
			n = v.falls
		}
		v.until = min(t+then.Steps[min(n, len(then.Steps))-1], event.Forever)
	}
	v.lastUntil = v.until
}

// notices are once per window and step; in a sliding window once per its length.
func (l *bookLimit) notices(count, limit event.Decimal, t event.Micros) (changes []bookChange) {
	for _, step := range l.Warn {
		if float64(count) < float64(limit)*float64(step.Share)/float64(event.One) {
			continue
		}
		from, until := l.Window.Bounds(l.window, t)
		given, was := l.warned[step.Text]
		if l.Window.Kind == windows.Sliding {
			if was && t < given+l.Window.Per {
				continue
			}
			until = t + l.Window.Per
		} else if was && given >= from {
			continue
		}
		if l.Window.Kind == windows.Hopping { // until the last one ends that holds it
			until += l.Window.Per - l.Window.Every
		}
		l.warned[step.Text] = t
		changes = append(changes, bookChange{
			Rule: l.Name, Step: step.Text, State: verdict.Warn, Mode: l.Rule.Mode, Count: count, Limit: limit, Since: t, Until: until,
		})
	}
	return changes
}
