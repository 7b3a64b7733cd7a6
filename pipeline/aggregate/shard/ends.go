package shard

import (
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// movedEnds are the ends of blocks that moved on and wait to be published. A flood moves an end at
// each event: a bucket's by a token, a sliding window's by what slides out next. All that matters
// of them to an enforcer is the newest, and that not before the end that it knows draws near. So
// publication goes by time:
//
//   - at most once a grain, which is a sixtieth of the window;
//   - but before the end that was published comes within a margin of half a grain, or half a
//     second;
//   - and as soon as nothing has moved it for a second: what a flood has come to is known when it
//     is over.
//
// What rules make of events does not depend on it: a state has the newest end at once, and a block
// is in force until then. An end that waits is in each record of its key's state as a verdict that
// is not published yet, so that the next owner publishes it; so does this one before it lets the
// partition go.
//
// Time is an argument: it is the broker's.
type movedEnds struct {
	byKey   map[string][]*movedEnd
	n       int // in byKey
	waiting int // of them
}

// movedEnd is a block whose end moves: while v is there it waits, and then it says when it was
// published last.
type movedEnd struct {
	rule  string
	told  event.Micros // the end that is published
	grain event.Micros
	next  event.Micros // when it may be published again
	last  event.Micros // when it moved last
	v     *verdict.Verdict
}

const (
	// mostMoved bounds the memory for ends that move: more are published at each move.
	mostMoved = 8192

	leastMargin = 500 * event.Millisecond
	quietAfter  = event.Second
)

// due returns the moment at which an end is to be published.
func (e *movedEnd) due() event.Micros {
	return min(e.next, e.last+quietAfter, e.told-max(e.grain/2, leastMargin))
}

// isDue is also true when the clock was set back: it is unknown how late it is.
func (e *movedEnd) isDue(now event.Micros) bool { return now >= e.due() || now < e.last }

// published notes that an end goes out.
func (e *movedEnd) published(now event.Micros) {
	e.told, e.next, e.v = e.v.Until, now+e.grain, nil
}

// keep takes in an end that has moved, and reports whether it waits; else it is to be published
// now.
func (m *movedEnds) keep(key string, v *verdict.Verdict, mv *rules.Move, now event.Micros) (waits bool) {
	e := m.find(key, v.Rule)
	if e != nil && e.v == nil && now >= e.next {
		m.remove(key, e) // long ago
		e = nil
	}
	known := e != nil
	if !known {
		e = &movedEnd{rule: v.Rule, told: mv.From, next: now + mv.Grain}
	}
	e.grain, e.last = mv.Grain, now
	if e.isDue(now) {
		if known {
			m.waits(e, v)
			m.tell(e, now)
		}
		return false
	}
	if !known && !m.add(key, e) {
		return false
	}
	m.waits(e, v)
	return true
}

func (m *movedEnds) waits(e *movedEnd, v *verdict.Verdict) {
	if e.v == nil {
		m.waiting++
	}
	e.v = new(cloneVerdict(v))
}

func (m *movedEnds) tell(e *movedEnd, now event.Micros) {
	e.published(now)
	m.waiting--
}

func (m *movedEnds) find(key, rule string) *movedEnd {
	for _, e := range m.byKey[key] {
		if e.rule == rule {
			return e
		}
	}
	return nil
}

// add makes room, if need be, by forgetting when another end was published last.
func (m *movedEnds) add(key string, e *movedEnd) bool {
	if m.byKey == nil {
		m.byKey = map[string][]*movedEnd{}
	}
	if m.n >= mostMoved {
		m.forgetOne()
	}
	if m.n >= mostMoved {
		return false
	}
	m.byKey[key] = append(m.byKey[key], e)
	m.n++
	return true
}

func (m *movedEnds) forgetOne() {
	const looks = 8 // a map's order is random
	looked := 0
	for key, ends := range m.byKey {
		for _, e := range ends {
			if e.v == nil {
				m.remove(key, e)
				return
			}
		}
		if looked++; looked == looks {
			return
		}
	}
}

func (m *movedEnds) remove(key string, e *movedEnd) {
	ends := m.byKey[key]
	i := slices.Index(ends, e)
	if e.v != nil {
		m.waiting--
	}
	m.n--
	if len(ends) == 1 {
		delete(m.byKey, key)
		return
	}
	m.byKey[key] = slices.Delete(ends, i, i+1)
}

// overtaken drops the end that waits when another verdict in its place goes out, and says whether
// there was one.
func (m *movedEnds) overtaken(key string, v *verdict.Verdict) bool {
	e := m.find(key, v.Rule)
	if e == nil || v.State == verdict.Warn || e.v == nil && v.State == verdict.Block && v.Until == e.told {
		return false
	}
	waited := e.v != nil
	m.remove(key, e)
	return waited
}

// forget drops all of a key.
func (m *movedEnds) forget(key string) {
	for _, e := range slices.Clone(m.byKey[key]) {
		m.remove(key, e)
	}
}

// of adds what waits of a key to what is not published of it.
func (m *movedEnds) of(key []byte, pending []unpublished) []unpublished {
	if m.waiting == 0 {
		return pending
	}
	for _, e := range m.byKey[string(key)] {
		if e.v != nil {
			pending = append(pending, unpublished{seq: -1, body: verdict.AppendJSON(nil, e.v)})
		}
	}
	return pending
}

// due are the keys of which an end is due, all that wait when asked for all. When an end was
// published last is forgotten when it no longer matters.
func (m *movedEnds) due(now event.Micros, all bool) (keys []string) {
	for key, ends := range m.byKey {
		if slices.ContainsFunc(ends, func(e *movedEnd) bool { return e.v != nil && (all || e.isDue(now)) }) {
			keys = append(keys, key)
		}
		// Backward: what is removed moves those behind it only.
		for i := len(ends) - 1; i >= 0; i-- {
			if e := ends[i]; e.v == nil && now >= e.next {
				m.remove(key, e)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// take takes out what is due of a key.
func (m *movedEnds) take(key string, now event.Micros, all bool) (vs []verdict.Verdict) {
	for _, e := range m.byKey[key] {
		if e.v != nil && (all || e.isDue(now)) {
			vs = append(vs, *e.v)
			m.tell(e, now)
		}
	}
	return vs
}

// A verdict is never lost, and never without its state. The state is written first, with the
// verdict in it marked unpublished. Only when that is durable does the verdict go out, with the
// record's offset as its seq. Once it is out too, the key's next write drops the mark.

// issuedVerdicts are the verdicts between the two acknowledgements, by key, oldest first.
type issuedVerdicts map[string][]*issued

type issued struct {
	unpublished
	v      verdict.Verdict
	broker event.Micros // of the event that caused it
	traced *Traced      // nil: it was not traced
}

// of returns a key's unpublished verdicts, oldest first.
func (m issuedVerdicts) of(key []byte) []unpublished {
	list := m[string(key)]
	if len(list) == 0 {
		return nil
	}
	out := make([]unpublished, len(list))
	for i, is := range list {
		out[i] = is.unpublished
	}
	return out
}

// remove reports whether it was the key's last one.
func (m issuedVerdicts) remove(key string, is *issued) (last bool) {
	list := slices.DeleteFunc(m[key], func(x *issued) bool { return x == is })
	if len(list) > 0 {
		m[key] = list
		return false
	}
	delete(m, key)
	return true
}

// cloneVerdict copies what a Step's result shares with its buffers.
func cloneVerdict(v *verdict.Verdict) verdict.Verdict {
	c := *v
	c.Key = make([]event.Dim, len(v.Key))
	for i, d := range v.Key {
		c.Key[i] = event.Dim{Name: strings.Clone(d.Name), Value: strings.Clone(d.Value)}
	}
	c.APIs = slices.Clone(v.APIs)
	c.Cause.ID = strings.Clone(v.Cause.ID)
	return c
}
