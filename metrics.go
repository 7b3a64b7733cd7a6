package tallygate

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/exemplar"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// NewCollector makes Prometheus metrics of parts that were not put together by Open. Each may be nil.
// What means the same as a metric of the decision server has its name: see the reference. Labels are names of
// rules, and reasons: none is what callers choose.
func NewCollector(table *enforce.Table, feed *blocklist.Feed, emitter *emit.Emitter) prometheus.Collector {
	return &collector{table: table, feed: feed, emitter: emitter}
}

type collector struct {
	table   *enforce.Table
	feed    *blocklist.Feed
	emitter *emit.Emitter
	guard   *Guard
}

// measure tells a value, with those of its labels.
type measure func(d *prometheus.Desc, v float64, labels ...string)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("tallygate_"+name, help, labels, nil)
}

var (
	descClock     = desc("clock_timestamp_seconds", "What the clock of this machine says: Prometheus compares it with its own.")
	descEnabled   = desc("enforcement_enabled", "1 normally, 0 while a kill switch allows everything.")
	descStale     = desc("in_doubt", "1 while the table is stale: before the first snapshot, or too far behind; else 0.")
	descStaleTime = desc("in_doubt_seconds_total", "Time during which the table was stale.")
	descLatency   = desc("event_to_enforced_seconds", "Seconds from an event until the block that it triggered is in force here.")
	descEntries   = desc("blocklist_entries", "Verdicts in the table that have not ended.")
	descBlocked   = desc("rule_blocked_keys", "Keys with an enforced block in force.", "rule")
	descShadow    = desc("rule_shadow_keys", "Keys with a block in force that is in shadow mode.", "rule")
	descWouldDeny = desc("rule_would_deny_total", "Checks that were allowed only because a rule's block is in shadow mode.", "rule")
	descDecided   = desc("rule_checks_total", "Checks decided by a rule's verdict, or by its local limit while the table is stale.", "rule", "action")
	descQuotas    = desc("quota_entries", "Keys and limits of which the table knows what is left.")
	descStaleness = desc("blocklist_staleness_seconds", "How far the table is behind the verdict topic, in seconds.")
	descFeed      = desc("feed_errors_total", "Failed attempts to follow the blocklist in Redis.", "reason")
	descPresence  = desc("presence_errors_total", "Failed attempts to announce this enforcer in Redis.", "reason")
	descNoDims    = desc("checks_without_dimensions_total", "Checks without any dimension.")
	descSuspects  = desc("integration_suspects_total", "What looks like a mistake in how the service uses Tallygate, by reason.", "reason")
	descSent      = desc("emit_sent_total", "Events that Kafka acknowledged.")
	descDropped   = desc("emit_dropped_total", "Events that were not sent, by reason.", "reason")
	descQueued    = desc("emit_queued", "Events that wait for Kafka, or are on their way.")
	descErrors    = desc("emit_errors_total", "Failed attempts to send events to Kafka, by reason.", "reason")
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	var all []*prometheus.Desc
	if c.table != nil {
		all = append(all, descClock, descEnabled, descStale, descStaleTime, descLatency, descEntries, descQuotas, descStaleness, descBlocked, descShadow, descWouldDeny, descDecided)
	}
	if c.feed != nil {
		all = append(all, descFeed)
	}
	if c.emitter != nil {
		all = append(all, descSent, descDropped, descQueued, descErrors)
	}
	if c.guard != nil {
		all = append(all, descNoDims)
		if c.guard.presence != nil {
			all = append(all, descPresence)
		}
	}
	if c.guard != nil || c.emitter != nil {
		all = append(all, descSuspects)
	}
	for _, d := range all {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	if t := c.table; t != nil {
		quotas, _ := t.Quotas()
		gauge(descClock, float64(time.Now().UnixMilli())/1000)
		gauge(descEnabled, number(t.Enabled()))
		gauge(descStale, number(t.Stale()))
		counter(descStaleTime, t.StaleTime().Seconds())
		rules(t, gauge, counter)
		gauge(descQuotas, float64(quotas))
		gauge(descStaleness, t.Staleness().Seconds())
		out <- exemplar.Latency(descLatency, t.Latency())
	}
	if c.feed != nil {
		kinds(counter, descFeed, c.feed.Stats().Errors)
	}
	suspects := map[string]uint64{}
	if c.guard != nil {
		noDims := c.guard.mistakes(suspects)
		counter(descNoDims, float64(noDims))
		if p := c.guard.presence; p != nil {
			kinds(counter, descPresence, p.Errors())
		}
	}
	if c.emitter != nil {
		c.events(gauge, counter, suspects)
	}
	for reason, n := range suspects {
		counter(descSuspects, float64(n), reason)
	}
}

// kinds are all reasons, so that a rate can be had from the beginning.
func kinds(counter measure, d *prometheus.Desc, counts map[blocklist.ErrorKind]uint64) {
	for _, kind := range blocklist.ErrorKinds {
		counter(d, float64(counts[kind]), string(kind))
	}
}

// rules counts verdicts in force, and decisions, by rule.
func rules(t *enforce.Table, gauge, counter measure) {
	s := t.Summary()
	gauge(descEntries, float64(s.Entries))
	for i := range s.Rules {
		r := &s.Rules[i]
		gauge(descBlocked, float64(r.Blocked), r.Rule)
		gauge(descShadow, float64(r.Shadow), r.Rule)
		counter(descWouldDeny, float64(r.WouldDeny), r.Rule)
		for action, n := range r.Decided {
			counter(descDecided, float64(n), r.Rule, action.String())
		}
	}
}

func (c *collector) events(gauge, counter measure, suspects map[string]uint64) {
	s := c.emitter.Stats()
	counter(descSent, float64(s.Emitted))
	for reason, n := range s.Dropped {
		counter(descDropped, float64(n), emit.Reason(reason).String())
	}
	gauge(descQueued, float64(s.Queued))
	for _, kind := range emit.ErrorKinds {
		counter(descErrors, float64(s.Errors[kind]), string(kind))
	}
	suspects[event.SuspectTime1970] = s.Suspects[event.SuspectTime1970]
}

// mistakes counts in how many middlewares each was found, and returns how many checks had no dimension.
func (g *Guard) mistakes(by map[string]uint64) (noDims uint64) {
	by[httplimit.SuspectNoDims], by[httplimit.SuspectNoUID], by[httplimit.SuspectSameAddress] = 0, 0, 0
	g.mu.Lock()
	gates := slices.Clone(g.gates)
	g.mu.Unlock()
	noDims = g.noDims.Load()
	for _, gate := range gates {
		s := gate.Stats()
		noDims += s.NoDims
		for _, reason := range s.Suspects {
			by[reason]++
		}
	}
	return noDims
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
