package aggregate

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/pipeline/event"
)

// Status is what this instance says about itself. It asks no other program, and waits for none.
func (a overview) Status() api.AggregatorStatus {
	now := time.Now()
	s := api.AggregatorStatus{Rules: a.rulesStatus(), Partitions: a.partitionsStatus(now), Kafka: a.kafkaTrouble(now)}
	if found := a.found.Load(); found != nil {
		s.Of = found.Partitions
	}
	for _, p := range a.owned() {
		if p.Live() {
			s.Rules.Blown = append(s.Rules.Blown, p.Sight().Blown...)
		}
	}
	slices.Sort(s.Rules.Blown)
	s.Rules.Blown = slices.Compact(s.Rules.Blown)
	return s
}

// rulesStatus is what the instance runs. Whoever reads its rule file adds how that is.
func (a overview) rulesStatus() api.RulesStatus {
	set := a.book.Current().Set
	s := api.RulesStatus{Name: set.Name, File: a.cfg.RuleFile.Name, FileOK: true, Differ: int(a.differ.Load())}
	if running := a.book.running.Load(); running != nil {
		s.Version, s.Name, s.File, s.By, s.At = running.Version, running.Name, running.File, running.By, running.At
	}
	return s
}

// partitionsStatus is of the partitions that this instance has been assigned, whether it has them yet or not.
func (a overview) partitionsStatus(now time.Time) []api.PartitionStatus {
	rates := map[int32]float64{}
	for _, h := range a.heats(event.FromTime(now), shownShare) {
		rates[h.partition] = round(h.rate, 10)
	}
	lags := a.lagging.Load()
	all := []api.PartitionStatus{}
	for id, failed := range a.assigned() {
		s := api.PartitionStatus{Partition: id, State: "recovering", Events: rates[id]}
		s.Takeovers, s.Failures = a.tallies.of(id)
		if lags != nil && int(id) < len(*lags) {
			l := (*lags)[id]
			s.Lag, s.LagSeconds, s.LoopLag = l.records, l.seconds, l.loop
		}
		if p := a.partition(id); p != nil && p.Live() {
			sight := p.Sight()
			s.State, s.Keys, s.Bytes = "open", sight.Keys, sight.Bytes
			s.LastFetch, s.LastCheckpoint, s.TakenOver, s.TakeoverSeconds = p.Heard().UTC(), sight.Durable.UTC(), sight.Opened.UTC(), sight.Took.Seconds()
		} else if failed {
			s.State = "failed"
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(x, y api.PartitionStatus) int { return cmp.Compare(x.Partition, y.Partition) })
	return all
}

// assigned returns the partitions of the session, and those that this instance still has from one before; and
// whether each has failed.
func (a overview) assigned() map[int32]bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	all := map[int32]bool{}
	if a.session != nil {
		for _, id := range a.session.Claims()[a.names.Events] {
			all[id] = false
		}
	}
	for id, o := range a.owns {
		all[id] = o.failure() != nil
	}
	return all
}

// tallies counts how often this instance has taken over each partition, and how often it failed.
type tallies struct {
	mu                  sync.Mutex
	takeovers, failures map[int32]uint64
}

func (t *tallies) count(id int32, takeovers, failures uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.takeovers == nil {
		t.takeovers, t.failures = map[int32]uint64{}, map[int32]uint64{}
	}
	t.takeovers[id] += takeovers
	t.failures[id] += failures
}

func (t *tallies) of(id int32) (takeovers, failures uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.takeovers[id], t.failures[id]
}
