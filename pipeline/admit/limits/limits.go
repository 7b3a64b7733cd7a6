// Package limits translates between rules and the protocol of permits: it makes questions of a request's amounts, and
// numbers of answers. It links no client of Redis.
package limits

import (
	"cmp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/admit/standing"
	"github.com/tallygate/tallygate/rules"
)

// Limit is a strict limit in the protocol's terms. Make it with Of.
type Limit struct {
	Shape protocol.Limit
	Tiers []protocol.Tier

	of      *rules.Limit
	almanac atomic.Pointer[almanac] // of windows without cells
}

// almanac is the ends of calendar windows, for moments in [from, to).
type almanac struct {
	from, to event.Micros
	ends     []event.Micros
}

// Unlimited is the threshold of keys without a limit: their permits are held all the same, so that a
// limit that they get later knows of them.
const Unlimited = rules.MaxStrict

// Of translates a limit for the protocol.
func Of(l *rules.Limit) *Limit {
	out := &Limit{of: l}
	s := &out.Shape
	s.Name, s.Hold, s.Returns = l.Hash.String(), l.Rule.Strict.Hold, l.Rule.Strict.Lost == rules.LostReturn
	for _, name := range l.Names()[1:] {
		s.Formers = append(s.Formers, name.String())
	}
	w := &l.Window
	switch {
	case l.InFlight:
		s.Kind, s.Returns = protocol.InFlight, true
	case w.Kind.HasRate():
		s.Kind, s.Rate, s.Per = protocol.Bucket, w.Limit, w.Per
	default:
		s.Grain, s.Offset, s.Keeps, _ = w.Cells()
		if w.Kind.Follows() {
			s.Lasts = w.Per
		}
	}
	number := func(t event.Decimal) event.Decimal {
		if t == rules.Unlimited {
			return Unlimited
		}
		return t
	}
	otherwise := l.Limit
	if l.Burst > 0 {
		otherwise = l.Burst
	}
	out.Tiers = append(out.Tiers, protocol.Tier{ID: 0, Threshold: number(otherwise)})
	for i := range l.Tiers {
		out.Tiers = append(out.Tiers, protocol.Tier{ID: l.Tiers[i].ID(), Threshold: number(l.Tiers[i].Limit)})
	}
	return out
}

// Lowest is the lowest number that the limit has for a key.
func (l *Limit) Lowest() event.Decimal {
	least := Unlimited
	for _, t := range l.Tiers {
		least = min(least, t.Threshold)
	}
	return least
}

// Want translates a request's amount under the limit, at about a time.
func (l *Limit) Want(w *rules.Want, at event.Micros) protocol.Want {
	out := protocol.Want{Limit: l.Shape, Amount: w.Amount, Threshold: w.Threshold}
	if w.Threshold == rules.Unlimited {
		out.Threshold = Unlimited
	}
	if w.AnyTier {
		out.Lowest, out.Threshold, out.Tiers = out.Threshold, -1, l.Tiers
	}
	if l.Shape.Kind == protocol.Window && l.Shape.Grain == 0 {
		out.Ends = l.EndsAt(at)
	}
	return out
}

// EndsAt are the ends of some calendar windows: of the one before that of a moment, of its own and of
// the two behind. So the shard's clock may be another one.
func (l *Limit) EndsAt(at event.Micros) []event.Micros {
	if a := l.almanac.Load(); a != nil && at >= a.from && at < a.to {
		return a.ends
	}
	a := &almanac{}
	a.from, a.to = l.of.Window.Bounds(nil, at)
	a.ends = append(a.ends, a.from, a.to)
	for range 2 {
		_, end := l.of.Window.Bounds(nil, a.ends[len(a.ends)-1])
		a.ends = append(a.ends, end)
	}
	l.almanac.Store(a)
	return a.ends
}

// ResetOf returns the moment at which so much, the last of it of now, no longer counts; 0 when it is not known.
func ResetOf(w *protocol.Want, used event.Decimal, at event.Micros) event.Micros {
	switch {
	case w.Kind == protocol.InFlight:
		return 0
	case w.Kind == protocol.Bucket:
		return at + event.Micros(float64(used)/float64(w.Rate)*float64(w.Per))
	case w.Lasts > 0:
		return at + w.Lasts // or sooner, if a window has begun
	case len(w.Ends) == 0:
		n := (at - w.Offset) / w.Grain
		if (at-w.Offset)%w.Grain < 0 {
			n--
		}
		return n*w.Grain + w.Offset + w.Keeps
	}
	for _, end := range w.Ends {
		if end > at {
			return end
		}
	}
	return 0
}

// Numbers reads a key's position from a shard's answer to a question with these wants.
func Numbers(wants []protocol.Want, g *protocol.Answer, granted bool) (n standing.Numbers) {
	n.Limited = !granted
	if g.Decides < 0 || g.Decides >= len(wants) {
		return n
	}
	w := &wants[g.Decides]
	used := g.Used
	if granted {
		used += w.Amount
	}
	n.Limit, n.Remaining = g.Limit, max(0, g.Limit-used)
	reset := ResetOf(w, used, g.Now)
	if !granted && g.ResetAt > 0 || w.Lasts > 0 && g.ResetAt > g.Now { // of all limits of the key
		reset = min(reset, g.ResetAt)
	}
	if reset > g.Now {
		n.ResetAfter = (reset - g.Now).Duration()
	}
	switch {
	case granted:
	case w.Amount > g.Limit:
		n.RetryAfter = standing.Never
	case g.RetryAt > g.Now:
		n.RetryAt, n.RetryAfter = g.RetryAt, max((g.RetryAt-g.Now).Duration(), time.Microsecond)
	}
	return n
}

// Event is the event that a request will be, as far as it is known. It appends its attributes to attrs.
func Event(attrs []event.Attr, api string, dims []event.Dim, cost event.Decimal) event.Event {
	e := event.Event{API: api, Cost: cmp.Or(cost, event.One), Time: event.NoTime, BrokerTime: event.NoTime, Attrs: attrs}
	for _, d := range dims {
		switch name, isAttr := strings.CutPrefix(d.Name, "attrs."); {
		case isAttr:
			e.Attrs = append(e.Attrs, event.Attr{Name: name, Value: event.StringValue(d.Value)})
		case d.Name == "uid":
			e.UID = d.Value
		case d.Name == "ip":
			e.IP, _ = event.ParseAddress(d.Value)
		}
	}
	e.Canonicalize()
	return e
}
