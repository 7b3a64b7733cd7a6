package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/apiclient"
	"github.com/tallygate/tallygate/internal/notify/config"
	"github.com/tallygate/tallygate/internal/notify/note"
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
	var c api.Cluster
	if err == nil {
		err = json.Unmarshal(body, &c)
	}
	if err != nil {
		if refused, ok := errors.AsType[*apiclient.Refusal](err); ok && refused.Status < 500 {
			return fmt.Errorf("ask for the cluster: %w", err) // it is there
		}
		if s.down.IsZero() {
			s.down = now
		}
		s.see(now, s.Watch.GoneFor, []note.Note{{Kind: note.AggregatorsGone, Subject: "aggregators", What: "no aggregator answers: nobody counts, and no new verdicts come"}}, note.AggregatorsGone)
		return fmt.Errorf("ask for the cluster: %w", err)
	}
	s.down, s.keys = time.Time{}, 0
	var gone, rejected, behind []note.Note
	for _, u := range c.Unowned {
		gone = append(gone, note.Note{Kind: note.AggregatorsGone, Subject: fmt.Sprintf("partition %d", u.Partition), What: "has no owner: " + u.Reason})
	}
	for i := range c.Members {
		m := &c.Members[i]
		a := m.Aggregator
		if a == nil {
			continue
		}
		if !a.Rules.FileOK && a.Rules.FileError != "" {
			rejected = append(rejected, note.Note{Kind: note.RulesRejected, Subject: m.Instance, What: "keeps the rules that it has", Reason: firstLine(a.Rules.FileError)})
		}
		for _, p := range a.Partitions {
			s.keys += p.Keys
			if p.LagSeconds > s.Watch.LagAbove.Seconds() {
				behind = append(behind, note.Note{Kind: note.Lag, Subject: fmt.Sprintf("partition %d", p.Partition), What: fmt.Sprintf("is %.0f s and %d records behind, at %s", p.LagSeconds, p.Lag, m.Instance)})
			}
		}
	}
	s.see(now, s.Watch.GoneFor, gone, note.AggregatorsGone)
	s.see(now, 0, rejected, note.RulesRejected)
	s.see(now, s.Watch.LagFor, behind, note.Lag)
	return nil
}

// firstLine is a rule file's first mistake: what follows is its lines.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return note.Cut(line, 300)
}

func (s *States) enforcers(ctx context.Context, now time.Time) error {
	if s.Beats == nil {
		return nil
	}
	beats, err := s.Beats(ctx)
	if err != nil {
		return fmt.Errorf("ask for the enforcers: %w", err)
	}
	var stale, gone []note.Note
	for i := range beats {
		b := &beats[i]
		switch {
		case b.Gone():
			gone = append(gone, note.Note{Kind: note.EnforcerGone, Subject: b.Name, What: "has not announced itself since " + note.Clock(b.Seen), Reason: b.Error})
		case b.Stale:
			what := "has no blocklist yet"
			if b.Staleness >= 0 {
				what = fmt.Sprintf("its blocklist is %.0f s old", b.Staleness)
			}
			stale = append(stale, note.Note{Kind: note.EnforcerStale, Subject: b.Name, What: what, Reason: b.Error})
		}
	}
	// One that began again under the name of another is not gone.
	gone = slices.DeleteFunc(gone, func(n note.Note) bool {
		return slices.ContainsFunc(beats, func(b presence.Beat) bool { return b.Name == n.Subject && !b.Gone() })
	})
	s.see(now, s.Watch.StaleFor, stale, note.EnforcerStale)
	s.see(now, 0, gone, note.EnforcerGone)
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
