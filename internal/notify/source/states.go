package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tallygate/tallygate/internal/notify/config"
	"github.com/tallygate/tallygate/internal/notify/note"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// States looks at what aggregators, enforcers and the blocklist say, and knows which states last. Make it with
// its fields set; one goroutine uses it.
type States struct {
	Watch   config.Watch
	Cluster func(context.Context) ([]byte, error)          // GET /v1/cluster
	Beats   func(context.Context) ([]presence.Beat, error) // nil: there is no Redis
	Blocked func(time.Time) (map[string]int, bool)         // nil: there is no Redis
	Now     func() time.Time

	keys  int // active ones, when the cluster was seen last
	lasts map[string]*lasting
	down  time.Time // since when no aggregator answers; zero: one does
}

// lasting is a state, or what may become one.
type lasting struct {
	note  note.Note
	since time.Time
	fires bool
}

// Look asks everybody, and returns the states that last, in order. The errors are of those that could not be
// asked: of what they would have said, all stays as it was.
func (s *States) Look(ctx context.Context) ([]note.Note, error) {
	now := s.Now()
	if s.lasts == nil {
		s.lasts = map[string]*lasting{}
	}
	err := errors.Join(s.cluster(ctx, now), s.enforcers(ctx, now))
	s.hits(now)
	var out []note.Note
	for _, id := range slices.Sorted(maps.Keys(s.lasts)) {
		if l := s.lasts[id]; l.fires {
			out = append(out, l.note)
		}
	}
	return out, err
}

// see takes in which states of some kinds there are now. One fires when it has lasted.
func (s *States) see(now time.Time, lasts time.Duration, are []note.Note, kinds ...note.Kind) {
	current := map[string]bool{}
	for _, n := range are {
		id := n.ID()
		current[id] = true
		l := s.lasts[id]
		if l == nil {
			l = &lasting{since: now}
			s.lasts[id] = l
		}
		if n.State, n.At = note.Firing, l.since; !l.fires {
			l.note = n
		}
		l.note.What = n.What
		l.fires = l.fires || now.Sub(l.since) >= lasts
	}
	maps.DeleteFunc(s.lasts, func(id string, l *lasting) bool { return !current[id] && slices.Contains(kinds, l.note.Kind) })
}

func (s *States) cluster(ctx context.Context, now time.Time) error {
	body, err := s.Cluster(ctx)
	var c health.Cluster
	if err == nil {
		err = json.Unmarshal(body, &c)
	}
	o := &health.Observations{Now: now, LateAfter: s.Watch.LagAbove}
	o.Cluster.Took(c, err, now)
	if err != nil {
		if down := s.notes(o, note.AggregatorsGone); len(down) > 0 { // else one has refused: it is there
			if s.down.IsZero() {
				s.down = now
			}
			s.see(now, s.Watch.GoneFor, down, note.AggregatorsGone)
		}
		return fmt.Errorf("ask for the cluster: %w", err)
	}
	s.down, s.keys = time.Time{}, 0
	for i := range c.Members {
		if a := c.Members[i].Aggregator; a != nil {
			for _, p := range a.Partitions {
				s.keys += p.Keys
			}
		}
	}
	s.see(now, s.Watch.GoneFor, s.notes(o, note.AggregatorsGone), note.AggregatorsGone)
	s.see(now, 0, s.notes(o, note.RulesRejected), note.RulesRejected)
	s.see(now, s.Watch.LagFor, s.notes(o, note.Lag), note.Lag)
	return nil
}

// notes has one for each subject of the findings of a kind.
func (s *States) notes(o *health.Observations, kind note.Kind) (all []note.Note) {
	for _, f := range health.Of(o, func(f *health.Finding) bool { return f.Kind == string(kind) }) {
		for _, about := range f.About {
			all = append(all, note.Note{Kind: kind, Subject: about.Name, What: about.What, Reason: about.Reason})
		}
	}
	return all
}

func (s *States) enforcers(ctx context.Context, now time.Time) error {
	if s.Beats == nil {
		return nil
	}
	beats, err := s.Beats(ctx)
	if err != nil {
		return fmt.Errorf("ask for the enforcers: %w", err)
	}
	o := &health.Observations{Now: now}
	o.Enforcers.Took(beats, nil, now)
	s.see(now, s.Watch.StaleFor, s.notes(o, note.EnforcerStale), note.EnforcerStale)
	s.see(now, 0, s.notes(o, note.EnforcerGone), note.EnforcerGone)
	return nil
}

// hits looks which rules block a large share of the active keys. A rule whose share lies between the two bounds
// stays what it is.
func (s *States) hits(now time.Time) {
	if s.Blocked == nil || s.keys == 0 || !s.down.IsZero() {
		return
	}
	by, ok := s.Blocked(now)
	if !ok {
		return
	}
	var are []note.Note
	for _, rule := range slices.Sorted(maps.Keys(by)) {
		n := note.Note{Kind: note.Hits, Rule: rule}
		share, bound := float64(by[rule])/float64(s.keys), s.Watch.HitsAbove
		if l := s.lasts[n.ID()]; l != nil && l.fires {
			bound = s.Watch.HitsBelow
		}
		if share < bound || by[rule] < s.Watch.HitsKeys {
			continue
		}
		n.What = fmt.Sprintf("blocks %d of %d active keys, %.1f%%", by[rule], s.keys, 100*share)
		are = append(are, n)
	}
	s.see(now, s.Watch.HitsFor, are, note.Hits)
}
