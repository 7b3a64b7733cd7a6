// Package rulestats turns counters that programs have since their start into what happens now, and says per rule
// how it fares. It is pure: who polls the programs calls Add.
package rulestats

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
)

// Member is one program's answer to a poll.
type Member struct {
	ID      string    // the same for one program, across its restarts
	Started time.Time // another one after a restart: its counters began again at 0
	Metrics map[string][]api.Sample
}

// Tracker adds up how much the counters of programs that come, go and restart grow. It is for one goroutine at
// a time. Use New.
type Tracker struct {
	window time.Duration
	began  time.Time // of the first poll
	last   map[string]seen
	totals map[string]*Series // by what seriesID returns
	past   []past             // the oldest first
}

// seen is a program's counters at the last poll that it answered.
type seen struct {
	started time.Time
	values  map[string]float64
}

// past is a sum at an earlier poll.
type past struct {
	at     time.Time
	totals map[string]float64
}

// Series is one counter, or the count of a histogram, of all programs together.
type Series struct {
	Metric string
	Labels map[string]string
	Total  float64 // since the first poll
	Rate   float64 // a second, over about the Tracker's window
}

// DefaultWindow is over which rates are by default: long enough to be calm, short enough to follow.
const DefaultWindow = 30 * time.Second

// New returns a Tracker of rates over a window; 0 is DefaultWindow.
func New(window time.Duration) *Tracker {
	if window == 0 {
		window = DefaultWindow
	}
	return &Tracker{window: window, last: map[string]seen{}, totals: map[string]*Series{}}
}

// Add takes a poll's answers. A program that does not answer keeps what it had added; should it answer again,
// what it counted meanwhile is added then. Of a program that is new to the Tracker nothing is added yet, since
// nobody knows when its counters grew, unless it started after the poll before. Polls come in the order of time.
func (t *Tracker) Add(at time.Time, members []Member) {
	before := t.began
	if n := len(t.past); n > 0 {
		before = t.past[n-1].at
	}
	if t.began.IsZero() {
		t.began = at
	}
	for i := range members {
		t.add(&members[i], before)
	}
	t.remember(at)
}

func (t *Tracker) add(m *Member, before time.Time) {
	was, known := t.last[m.ID]
	fresh := known && !m.Started.Equal(was.started) || !known && !before.IsZero() && m.Started.After(before)
	now := seen{started: m.Started, values: make(map[string]float64, len(was.values))}
	for metric, samples := range m.Metrics {
		for i := range samples {
			s := &samples[i]
			value := max(s.Value, float64(s.Count))
			id := seriesID(metric, s.Labels)
			now.values[id] = value
			total := t.totals[id]
			if total == nil {
				total = &Series{Metric: metric, Labels: s.Labels}
				t.totals[id] = total
			}
			switch old := was.values[id]; {
			case fresh || known && value < old: // it began again, whether or not it says so
				total.Total += value
			case known:
				total.Total += value - old
			}
		}
	}
	t.last[m.ID] = now
}

// remember keeps the totals, and computes the rates since the oldest that are within the window.
func (t *Tracker) remember(at time.Time) {
	for len(t.past) > 1 && at.Sub(t.past[1].at) >= t.window {
		t.past = t.past[1:]
	}
	totals := make(map[string]float64, len(t.totals))
	for id, s := range t.totals {
		totals[id] = s.Total
		s.Rate = 0
		if len(t.past) > 0 {
			if span := at.Sub(t.past[0].at).Seconds(); span > 0 {
				s.Rate = max(s.Total-t.past[0].totals[id], 0) / span
			}
		}
	}
	t.past = append(t.past, past{at, totals})
}

// Began returns the time of the first poll; the zero time before it.
func (t *Tracker) Began() time.Time { return t.began }

// Span is over which time the rates are; 0 before the second poll: they are not known yet.
func (t *Tracker) Span() time.Duration {
	if len(t.past) < 2 {
		return 0
	}
	return t.past[len(t.past)-1].at.Sub(t.past[0].at)
}

// Of returns a metric's series, in the order of their labels.
func (t *Tracker) Of(metric string) []Series {
	var ids []string
	for id, s := range t.totals {
		if s.Metric == metric {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	out := make([]Series, 0, len(ids))
	for _, id := range ids {
		out = append(out, *t.totals[id])
	}
	return out
}

func seriesID(metric string, labels map[string]string) string {
	var b strings.Builder
	b.WriteString(metric)
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString("\x00" + name + "\x00" + labels[name])
	}
	return b.String()
}
