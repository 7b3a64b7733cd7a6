package aggregate

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
)

// Status describes this instance. It asks no other program, and waits for none.
func (a *Aggregator) Status() api.AggregatorStatus {
	now := time.Now()
	s := api.AggregatorStatus{Rules: a.rulesStatus(), Partitions: a.partitionsStatus(now), Kafka: a.kafkaTrouble(now)}
	if found := a.found.Load(); found != nil {
		s.Of = found.Partitions
	}
	for _, p := range (asked{a.instance}).Owned() {
		s.Rules.Blown = append(s.Rules.Blown, p.Sight().Blown...)
	}
	slices.Sort(s.Rules.Blown)
	s.Rules.Blown = slices.Compact(s.Rules.Blown)
	return s
}

// rulesStatus describes the rules that the instance runs. Whoever reads its rule file adds how that is.
func (a *Aggregator) rulesStatus() api.RulesStatus {
	set := a.book.Current().Set
	s := api.RulesStatus{Name: set.Name, File: a.cfg.RuleFile.Name, FileOK: true, Differ: int(a.differ.Load())}
	if running := a.book.running.Load(); running != nil {
		s.Version, s.Name, s.File, s.By, s.At = running.Version, running.Name, running.File, running.By, running.At
	}
	return s
}

// partitionsStatus is of the partitions that this instance has been assigned, whether it has them yet or not.
func (a *Aggregator) partitionsStatus(now time.Time) []api.PartitionStatus {
	rates := map[int32]float64{}
	for _, h := range ask.Heats(asked{a.instance}.Owned(), event.FromTime(now)) {
		rates[h.Partition] = ask.Round(h.Rate, 10)
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
func (a *Aggregator) assigned() map[int32]bool {
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

// Agrees returns nil if the members of the group agree in what must be the same for all, and else how they differ,
// as far as this instance has seen. Events are counted all the same.
func (a *Aggregator) Agrees() error {
	var all []error
	for _, d := range a.Differences() {
		all = append(all, errors.New(d.String()))
	}
	return errors.Join(all...)
}

// Differences returns what Agrees tells of.
func (a *Aggregator) Differences() []api.Difference {
	if seen := a.agreement.seen.Load(); seen != nil {
		return *seen
	}
	return nil
}
