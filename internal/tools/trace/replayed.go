package trace

import (
	"context"
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/engine"
	"github.com/tallygate/tallygate/internal/tools/replay"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// replayed counts events itself, from zero.
type replayed struct {
	engine  *engine.Engine
	outcome engine.Outcome
	keys    map[string]stepped // of the current event, by the keys' texts
}

// stepped is the effect of the event on one key.
type stepped struct {
	repeat, unknown bool
	late            int
	same            bool // a denial told nothing
}

func newReplayed(set *rules.Set) *replayed {
	r := &replayed{engine: engine.New(set), keys: map[string]stepped{}}
	r.engine.Stepped = func(s *shard.Stepped) {
		r.keys[string(s.Key)] = stepped{s.Result.Repeat, s.Result.Unknown, s.Result.Late, s.Result.Same}
	}
	return r
}

// broker is now for an event that has no time at all, as one that somebody has just typed.
func (r *replayed) broker(rec *replay.Record) event.Micros {
	if rec.Broker == event.NoTime && rec.Time == event.NoTime {
		return now()
	}
	return rec.Broker
}

func (r *replayed) count(_ context.Context, rec *replay.Record, at event.Micros, to []target, wanted bool) ([]verdict.Verdict, error) {
	clear(r.keys)
	before := make([][]rules.Explanation, len(to))
	for i := range to {
		before[i] = r.explain(to[i].why.Key, at)
	}
	r.engine.Apply(&rec.Event, rec.Broker, rec.Cause, &r.outcome)
	if !wanted {
		return nil, nil
	}
	for i := range to {
		r.fill(&to[i], before[i], r.explain(to[i].why.Key, at), at)
	}
	return slices.Clone(r.outcome.Changes), nil
}

// explain describes a key's position at the event's time, or at its latest event's if that is later.
func (r *replayed) explain(key []byte, at event.Micros) []rules.Explanation {
	dims := dimsOf(key)
	list := r.engine.Explain(dims, "", at)
	if len(list) > 0 && list[0].Latest > at {
		list = r.engine.Explain(dims, "", list[0].Latest)
	}
	return list
}

func (r *replayed) fill(t *target, before, after []rules.Explanation, at event.Micros) {
	is := r.keys[string(t.why.Key)]
	t.to.Repeat, t.to.NoSuch = is.repeat, is.unknown
	for i := range t.to.Limits {
		lt := &t.to.Limits[i]
		was, x := find(before, lt.Limit), find(after, lt.Limit)
		if was == nil || x == nil {
			continue // not reached: both have all limits of the key
		}
		lt.explained(x, t.why.Rule, t.why.Key)
		lt.Before, lt.After = was.Count, &x.Count
		lt.Passes = t.why.Hits[i].Limit.Passes(x.Count, x.Bound())
		if hit := &t.why.Hits[i]; hit.Tells {
			lt.Late = tellsNothing(was, at)
			if lt.Late == "" && (is.same || !x.OwnLimit() && x.Bound() != hit.LimitOf().Plus(x.Granted)) {
				lt.Late = toldLater
			}
			continue
		}
		if x.Count != was.Count || is.repeat || is.unknown || t.why.Does != rules.Counts || lt.Amount == 0 {
			continue
		}
		if is.late > 0 || at < x.From {
			lt.Late = x.TooLate(at)
		}
	}
}

func find(list []rules.Explanation, limit string) *rules.Explanation {
	for i := range list {
		if list[i].Rule == limit {
			return &list[i]
		}
	}
	return nil
}
