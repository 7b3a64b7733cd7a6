package admit

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/windows"
)

// version is a version of the rules.
type version struct {
	number   uint64
	set      *rules.Set
	limits   map[*rules.Limit]*limit
	requests sync.Pool // of *rules.Requests
}

// limit is what the protocol knows of a strict limit.
type limit struct {
	of      *rules.Limit
	shape   protocol.Limit
	tiers   []protocol.Tier
	almanac atomic.Pointer[almanac] // of calendar windows
}

// almanac is the ends of calendar windows, for moments in [from, to).
type almanac struct {
	from, to event.Micros
	ends     []event.Micros
}

// unlimited is the threshold of keys without a limit: their permits are held all the same, so that a
// limit that they get later knows of them.
const unlimited = rules.MaxStrict

func newVersion(number uint64, set *rules.Set) *version {
	v := &version{number: number, set: set, limits: map[*rules.Limit]*limit{}}
	strict := set.Strict()
	for _, r := range strict {
		for _, l := range r.Limits {
			v.limits[l] = newLimit(l)
		}
	}
	v.requests.New = func() any { return rules.NewRequests(strict) }
	return v
}

func (v *version) strict() bool { return len(v.limits) > 0 }

// ahead tells whether permits may be granted ahead under a limit.
func (v *version) ahead() bool {
	for l := range v.limits {
		if l.Rule.Strict.Ahead > 0 {
			return true
		}
	}
	return false
}

func newLimit(l *rules.Limit) *limit {
	out := &limit{of: l}
	s := &out.shape
	s.Name, s.Hold, s.Returns = hex.EncodeToString(l.Hash[:]), l.Rule.Strict.Hold, l.Rule.Strict.Lost == rules.LostReturn
	w := &l.Window
	switch {
	case l.InFlight:
		s.Kind, s.Returns = protocol.InFlight, true
	case w.Kind.HasRate():
		s.Kind, s.Rate, s.Per = protocol.Bucket, w.Limit, w.Per
	case w.Kind == windows.Tumbling:
		s.Grain, s.Offset, s.Keeps = w.Per, w.Offset, w.Per
	case w.Kind == windows.Hopping:
		s.Grain, s.Offset, s.Keeps = w.Every, w.Offset, w.Per
	case w.Kind == windows.Sliding && w.Exact:
		s.Grain, s.Keeps = 1, w.Per
	case w.Kind == windows.Sliding:
		s.Grain, s.Keeps = w.Resolution, w.Resolution+w.Per
	}
	number := func(t event.Decimal) event.Decimal {
		if t == 0 {
			return unlimited
		}
		return t
	}
	otherwise := l.Limit
	if l.Burst > 0 {
		otherwise = l.Burst
	}
	out.tiers = append(out.tiers, protocol.Tier{ID: 0, Threshold: number(otherwise)})
	for i := range l.Tiers {
		out.tiers = append(out.tiers, protocol.Tier{ID: l.Tiers[i].ID(), Threshold: number(l.Tiers[i].Limit)})
	}
	return out
}

// want is what a request wants of the limit at about a time.
func (l *limit) want(w *rules.Want, at event.Micros) protocol.Want {
	out := protocol.Want{Limit: l.shape, Amount: w.Amount, Threshold: w.Threshold}
	if w.Threshold == 0 {
		out.Threshold = unlimited
	}
	if w.AnyTier {
		out.Lowest, out.Threshold, out.Tiers = out.Threshold, -1, l.tiers
	}
	if l.of.Window.Kind == windows.Calendar && !l.of.InFlight {
		out.Ends = l.endsAt(at)
	}
	return out
}

// endsAt are the ends of some calendar windows: of the one before that of a moment, of its own and of
// the two behind. So the shard's clock may be another one.
func (l *limit) endsAt(at event.Micros) []event.Micros {
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

// resetOf is when so much, the last of it of now, no longer counts; 0 when it is not known.
func resetOf(w *protocol.Want, used event.Decimal, at event.Micros) event.Micros {
	switch {
	case w.Kind == protocol.InFlight:
		return 0
	case w.Kind == protocol.Bucket:
		return at + event.Micros(float64(used)/float64(w.Rate)*float64(w.Per))
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

// record is what of a record of the rules topic matters here.
type record struct {
	Format int               `json:"format"`
	File   string            `json:"file"`
	Source string            `json:"source"`
	Files  map[string][]byte `json:"files"`
}

const recordFormat = 1

var errNotBeside = errors.New("it was not published with the rules")

// parseVersion compiles a version's text: its record in the rules topic, or nothing, when no rule of it
// asks for anything.
func parseVersion(of uint64, text []byte) (*version, error) {
	if len(text) == 0 {
		return newVersion(of, &rules.Set{}), nil
	}
	number := protocol.RulesNumber(of)
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("read version %d of the rules: %w", number, err)
	}
	if r.Format != recordFormat {
		return nil, fmt.Errorf("read version %d of the rules: it has format %d, this program reads %d: update it", number, r.Format, recordFormat)
	}
	set, err := rules.CompilePublished(r.File, []byte(r.Source), func(name string) ([]byte, error) {
		if b, ok := r.Files[name]; ok {
			return b, nil
		}
		return nil, fmt.Errorf("%s: %w", name, errNotBeside)
	})
	if err != nil {
		return nil, fmt.Errorf("compile version %d of the rules; if a newer program published it, update this one: %w", number, err)
	}
	return newVersion(of, set), nil
}
