// Package suggest is `tallygate suggest`: it counts past events by rules whose limits have no number yet, and tells
// which numbers would hit a given share of the keys or of the events.
//
// It has no counters of its own. A draft's limits get numbers that no count reaches, the engine of `tallygate
// replay` counts, and each count is noted.
//
// The numbers are exact by these definitions:
//
//   - The highest count of a key is the greatest that a window had after one of its events. So a late event counts
//     where the engine counts it, and a refund lowers nothing that was counted before.
//   - A key is over a limit when its highest count is greater; an event is, when the count with it is greater. That
//     does not depend on whether the rule blocks when its limit is reached or exceeded: either way somebody is denied
//     who wants more than the limit.
//   - The limit for a share is the least one that at most this share is over. Other definitions of quantiles interpolate
//     between two counts, and give limits that nobody can count to.
//
// A second pass with the chosen numbers would tell exactly which events a verdict covers, as blocks outlast windows.
// It is `tallygate replay`, with the rules that this command prints: standard input can't be read twice.
package suggest

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/replay"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
)

// Study counts events by a draft. It is for one goroutine. What it keeps of a key is bounded, how many keys there
// are is not: see Keys and Bytes.
type Study struct {
	*replay.Comparison

	draft *rules.Draft
	// Of the draft's sought limits, in the order of the file.
	measures []*measure
	byLimit  map[string]*measure

	// A hash of the user of the event that is counted; 0: it has none.
	uid uint64
	// And its time.
	at    event.Micros
	clock func(*event.Event, event.Micros) (event.Micros, bool)
}

// New returns a Study that has seen no event.
func New(d *rules.Draft) *Study {
	s := &Study{Comparison: replay.Compare(d.Set, d.Exact), draft: d, byLimit: map[string]*measure{}, clock: d.Set.EventTime}
	for _, sought := range d.Sought {
		for _, l := range d.Set.Limits {
			if l.Name == sought.Limit {
				m := newMeasure(l, sought)
				s.measures, s.byLimit[l.Name] = append(s.measures, m), m
			}
		}
	}
	s.OnRecord, s.OnStep = s.record, s.step
	return s
}

// Bytes is about how much memory the keys take.
func (s *Study) Bytes() int64 {
	n := s.Comparison.Bytes()
	for _, m := range s.measures {
		n += m.bytes
	}
	return n
}

// record keeps of the event what the engine does not hand on with its steps.
func (s *Study) record(r *replay.Record) {
	s.uid = hashUID(r.UID)
	s.at, _ = s.clock(&r.Event, r.Broker)
}

// step notes the counts of one event on one of its keys.
func (s *Study) step(step *shard.Stepped, exact bool) {
	for i := range step.Counts {
		c := &step.Counts[i]
		m := s.byLimit[c.Limit.Name]
		switch {
		case m == nil:
		case exact:
			m.countExact(step.Key, c.Count)
		default:
			m.count(step.Key, c, s.at, s.uid)
		}
	}
}
