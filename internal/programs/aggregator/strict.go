package aggregator

import (
	"cmp"
	"context"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/run/redisconn"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/admit/publish"
	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/rules"
)

// strictLimits publishes what owners say about strict limits.
type strictLimits struct {
	*publish.Publisher
	looker  *admit.Looker
	metrics *strictMetrics
}

// strict returns the publisher of strict limits, which agg tells all.
func (a *Program) strict(agg *aggregate.Aggregator, partitions int32) (strictLimits, error) {
	pub, err := publish.New(publish.Config{
		Redis:      publish.OnRedis(a.Redis, a.Config.Prefix, a.Shards, partitions),
		Ends:       agg,
		Kafka:      a.Kafka.Brokers,
		Transport:  a.Kafka.Transport(),
		Topic:      topics.NamesOf(a.Config.Prefix).Verdicts,
		Partitions: partitions,
		Shards:     a.Shards,
		Logger:     a.Log,
	})
	if err != nil {
		return strictLimits{}, err
	}
	prefix := cmp.Or(a.Config.Prefix, "tallygate")
	s := strictLimits{pub, admit.NewLooker(a.Redis, prefix, a.Shards, partitions), newStrictMetrics(pub)}
	if err := a.Registry.Register(s.metrics); err != nil {
		return strictLimits{}, err
	}
	if err := redisconn.CountErrors(a.Registry, "tallygate_strict_errors_total", "Failed attempts to write strict limits to Redis.",
		func() map[blocklist.ErrorKind]uint64 { return pub.Stats().Errors }, publish.ErrorKinds...); err != nil {
		return strictLimits{}, err
	}
	agg.PublishStrict(s)
	agg.FollowRules(s.use)
	agg.ExplainStrict(s.explain)
	return s, nil
}

func (s strictLimits) run(ctx context.Context) error {
	return ops.IgnoreCanceled(ctx, s.Publisher.Run(ctx))
}

// Own begins with a partition.
func (s strictLimits) Own(partition int32, p *aggregate.Partition, end int64) {
	s.Publisher.Own(partition, p, end)
}

// Offer hands over records of a partition.
func (s strictLimits) Offer(partition int32, first, next int64, records []aggregate.StrictRecord) {
	out := make([]publish.Record, len(records))
	for i := range records {
		out[i] = publish.Record{Offset: records[i].Offset, Record: records[i].Record}
	}
	s.Publisher.Offer(partition, first, next, out)
}

// use takes in the rules in force.
func (s strictLimits) use(version uint64, record []byte, set *rules.Set) {
	var holds []event.Micros
	for _, r := range set.Strict() {
		holds = append(holds, r.Strict.Hold)
	}
	s.metrics.use(set)
	if len(holds) == 0 && len(set.Instance) == 0 {
		record = nil // services need not understand it
	}
	s.Use(version, record, holds)
}

// explain adds the key's position in Redis.
func (s strictLimits) explain(ctx context.Context, partition int32, key string, limits []*rules.Limit) ([]api.StrictStanding, api.StrictState) {
	state := s.state(partition)
	seen, err := s.looker.Look(ctx, partition, key, limits)
	if err != nil {
		state.Error = "ask Redis about this key: " + err.Error()
		return nil, state
	}
	if state.Grants && !seen.Grants {
		state.Grants, state.Why = false, "Redis stopped a moment ago: it lost its memory, is another process, or its clock is far ahead"
	}
	out := make([]api.StrictStanding, len(limits))
	for i, l := range limits {
		at := &seen.Limits[i]
		out[i] = api.StrictStanding{
			Level: at.Level, Held: at.Held, Used: at.Used, Limit: max(at.Limit, 0), Closed: at.Limit == 0, Remaining: at.Remaining,
			Sum:     l.Rule.Count == rules.CountSum,
			Permits: at.Permits, Oldest: at.Oldest, LostAt: at.LostAt, Lost: "count", ResetsAt: at.ResetsAt,
		}
		if l.Rule.Strict.Lost == rules.LostReturn {
			out[i].Lost = "return"
		}
	}
	return out, state
}

// state tells whether permits are granted for a partition, by its publisher.
func (s strictLimits) state(partition int32) api.StrictState {
	stats := s.Stats()
	for i := range stats.Partitions {
		p := &stats.Partitions[i]
		switch {
		case p.Partition != partition:
		case p.Grants:
			return api.StrictState{Grants: true, DoubtSince: event.NoTime}
		default:
			state := api.StrictState{DoubtSince: p.DoubtSince, Why: p.Why}
			if stats.Failing && stats.LastError != nil {
				state.Why += ": " + stats.LastError.Error()
			}
			return state
		}
	}
	return api.StrictState{DoubtSince: event.NoTime, Why: "the partition is changing its owner"}
}

// strictMetrics are the metrics of strict limits.
type strictMetrics struct {
	stats func() publish.Stats

	mu    sync.Mutex
	rules map[string]*rules.Limit // by their names in permits

	lost, granting, doubt, unsettled, ahead, applies *prometheus.Desc
}

func newStrictMetrics(pub *publish.Publisher) *strictMetrics {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("tallygate_strict_"+name, help, labels, nil)
	}
	return &strictMetrics{
		stats: pub.Stats, rules: map[string]*rules.Limit{},
		lost:      describe("lost_permits_total", "Permits whose actions never told how they ended, and that were counted.", "rule"),
		granting:  describe("partitions_granting", "Owned partitions for which Redis may grant permits."),
		doubt:     describe("doubt_since_timestamp_seconds", "Since when Redis may not grant permits for an owned partition; 0 when it may.", "partition"),
		unsettled: describe("unsettled_seconds", "How long ago the moment was up to which all of an owned partition is settled.", "partition"),
		ahead:     describe("clock_ahead_seconds", "By how much Redis' clock for an owned partition is ahead of this machine's: above 60 nothing is granted.", "partition"),
		applies:   describe("applies_total", "Batches about strict limits that Redis took."),
	}
}

// use remembers the names of a set's strict rules.
func (m *strictMetrics) use(set *rules.Set) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range set.Strict() {
		for _, l := range r.Limits {
			for _, name := range l.Names() {
				m.rules[name.String()] = l
			}
		}
	}
}

// Describe tells what Collect collects.
func (m *strictMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.lost, m.granting, m.doubt, m.unsettled, m.ahead, m.applies} {
		ch <- d
	}
}

// Collect tells how the publisher is doing.
func (m *strictMetrics) Collect(ch chan<- prometheus.Metric) {
	s := m.stats()
	granting := 0.0
	for i := range s.Partitions {
		p := &s.Partitions[i]
		if !p.Strict && !p.Grants {
			continue
		}
		partition, doubt := strconv.Itoa(int(p.Partition)), 0.0
		if p.Grants {
			granting++
		} else {
			doubt = float64(p.DoubtSince) / 1e6
		}
		ch <- prometheus.MustNewConstMetric(m.doubt, prometheus.GaugeValue, doubt, partition)
		ch <- prometheus.MustNewConstMetric(m.ahead, prometheus.GaugeValue, p.Ahead.Seconds(), partition)
		ch <- prometheus.MustNewConstMetric(m.unsettled, prometheus.GaugeValue, p.Unsettled.Seconds(), partition)
	}
	ch <- prometheus.MustNewConstMetric(m.granting, prometheus.GaugeValue, granting)
	ch <- prometheus.MustNewConstMetric(m.applies, prometheus.CounterValue, float64(s.Applies))
	for rule, n := range m.lostByRule(s.Lost) {
		ch <- prometheus.MustNewConstMetric(m.lost, prometheus.CounterValue, float64(n), rule)
	}
}

// lostByRule counts a permit under the limits of one rule once. Each of them has lost it.
func (m *strictMetrics) lostByRule(lost map[string]uint64) map[string]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	limits, out := map[string]uint64{}, map[string]uint64{}
	for name, l := range m.rules {
		limits[l.Name] += lost[name]
		out[l.Rule.Name] = max(out[l.Rule.Name], limits[l.Name]) // also 0, so that a rate can be had from the beginning
	}
	return out
}
