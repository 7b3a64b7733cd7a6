package aggregate

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

// metrics are the aggregator's. Labels are rules, partitions and reasons: never a key.
type metrics struct {
	events       eventResults
	decodeErrors *prometheus.CounterVec
	matches      *prometheus.CounterVec
	rulesVersion prometheus.Gauge
	rulesFailed  prometheus.Counter
	fuses        *prometheus.CounterVec
	verdictsOut  *prometheus.CounterVec
	verdictsOver prometheus.Counter
	overtaken    prometheus.Counter
	notMatched   *prometheus.CounterVec
	checkpoints  prometheus.Histogram
	pauses       prometheus.Histogram
	lagging      *prometheus.GaugeVec
	lagSeconds   *prometheus.GaugeVec
	loopLag      *prometheus.GaugeVec
	loopSeconds  *prometheus.GaugeVec
	lastFetch    *prometheus.GaugeVec
	lastDurable  *prometheus.GaugeVec
	kafkaErrors  *prometheus.CounterVec
	failed       *prometheus.CounterVec
	takeovers    *prometheus.CounterVec
	passedOver   prometheus.Counter
	keys         *prometheus.GaugeVec
	stateBytes   *prometheus.GaugeVec
	eventRates   *prometheus.GaugeVec
	toVerdict    prometheus.Histogram
	forwarded    prometheus.Counter
	droppedIPs   prometheus.Counter
	lost         prometheus.Counter
	swept        prometheus.Counter
	owned        prometheus.Gauge
	rulesDiffer  prometheus.Gauge
}

// eventResults are what can become of an event. One event may have several keys: counted,
// repeat, late and unknown refunds are per key.
type eventResults struct {
	counted, unmatched, repeat, late, tooOld, noTime, unknownRefund, replayed, producerRepeat, deadLetter prometheus.Counter
}

// verdictBuckets are fine where verdicts are when all is well, and have 5 and 25 ms among them.
// The broker's time is in whole milliseconds, so that finer ones would tell nothing.
var verdictBuckets = []float64{.001, .002, .003, .004, .005, .0075, .01, .015, .02, .025, .035, .05, .075, .1, .15, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// pauseBuckets tell slices that go as planned from what events would feel.
var pauseBuckets = []float64{50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return register(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: "tallygate_" + name, Help: help}))
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tallygate_" + name, Help: help}, labels))
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tallygate_" + name, Help: help}, labels))
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tallygate_" + name, Help: help, Buckets: buckets}))
	}
	events := counters("events_total", "Events by outcome (counted, repeat, late and unknown_refund: once per key).", "result")
	kafkaErrors := counters("kafka_errors_total", "Failed requests to Kafka and refusals by Kafka, by reason.", "reason")
	for _, t := range troubles { // all of them, so that a rate can be had from the beginning
		kafkaErrors.WithLabelValues(t)
	}
	return &metrics{
		events: eventResults{
			counted:        events.WithLabelValues("counted"),
			unmatched:      events.WithLabelValues("unmatched"),
			repeat:         events.WithLabelValues("repeat"),
			late:           events.WithLabelValues("late"),
			tooOld:         events.WithLabelValues("too_old"),
			noTime:         events.WithLabelValues("no_time"),
			unknownRefund:  events.WithLabelValues("unknown_refund"),
			replayed:       events.WithLabelValues("replayed"),
			producerRepeat: events.WithLabelValues("producer_repeat"),
			deadLetter:     events.WithLabelValues("dead_letter"),
		},
		decodeErrors: counters("event_decode_errors_total", "Records that contain malformed events, by reason of the first mistake.", "reason"),
		matches:      counters("rule_matches_total", "Events counted under a limit.", "rule"),
		fuses:        counters("fuses_blown_total", "Fuses blown, counted once per partition.", "rule"),
		rulesVersion: register(reg, prometheus.NewGauge(prometheus.GaugeOpts{Name: "tallygate_rules_version", Help: "Version of the group's rules that this instance runs; 0 if it runs rules of its own."})),
		rulesFailed:  counter("rules_failed_total", "Versions of the group's rules that failed to compile on this instance."),
		notMatched:   counters("rule_skips_total", "Events that a rule could not evaluate, by reason.", "rule", "reason"),
		verdictsOver: counter("verdicts_over_total", "Blocks not published because they had already ended."),
		overtaken:    counter("verdicts_overtaken_total", "Moved ends of blocks not published because a newer change replaced them."),
		verdictsOut:  counters("verdicts_total", "Verdicts published.", "rule", "state", "mode"),
		checkpoints:  histogram("checkpoint_duration_seconds", "Seconds from a checkpoint's cut until its offsets are released.", prometheus.ExponentialBuckets(0.001, 2, 14)),
		pauses:       histogram("checkpoint_pause_seconds", "Seconds that one slice of a checkpoint or sweep made a partition's events wait.", pauseBuckets),
		lagging:      gauges("partition_lag", "Records of the event partition not counted yet, whichever instance owns it.", "partition"),
		lagSeconds:   gauges("partition_lag_seconds", "Seconds since the event partition was last counted to its end, or the age of the last counted record, whichever is greater; 0 when caught up.", "partition"),
		loopLag:      gauges("loop_lag", "Records forwarded to an owned partition and not counted yet.", "partition"),
		loopSeconds:  gauges("loop_lag_seconds", "Age of the forwarded event that an owned partition counted last; 0 while none waits.", "partition"),
		lastFetch:    gauges("last_fetch_timestamp_seconds", "Time of the last response to a fetch of an owned partition, with or without records.", "partition"),
		lastDurable:  gauges("last_checkpoint_timestamp_seconds", "Time at which everything that an owned partition had counted was last known to be durable.", "partition"),
		kafkaErrors:  kafkaErrors,
		takeovers:    counters("takeovers_total", "Takeovers of the partition by this instance.", "partition"),
		failed:       counters("partition_failures_total", "Failures of an owned partition; each is followed by a new takeover.", "partition"),
		passedOver:   counter("records_unreadable_total", "Offsets skipped because their records are unreadable."),
		keys:         gauges("state_keys", "Keys in memory.", "partition"),
		stateBytes:   gauges("state_bytes", "Memory used by the keys' states and their index.", "partition"),
		eventRates:   gauges("partition_events_per_second", "Events per second over about the last 30 seconds; an event counts once per key.", "partition"),
		toVerdict:    histogram("event_to_verdict_seconds", "Seconds from the event's broker time until Kafka acknowledges its verdict.", verdictBuckets),
		forwarded:    counter("events_forwarded_total", "Events forwarded to the partition that owns one of their keys."),
		droppedIPs:   counter("event_dropped_ips_total", "Events with an invalid ip; they are counted without it."),
		lost:         counter("records_lost_total", "Records deleted by retention before they were counted."),
		swept:        counter("keys_swept_total", "Idle keys evicted."),
		rulesDiffer:  register(reg, prometheus.NewGauge(prometheus.GaugeOpts{Name: "tallygate_rules_differ", Help: "Members of the group whose rules differ from this instance's."})),
		owned:        register(reg, prometheus.NewGauge(prometheus.GaugeOpts{Name: "tallygate_partitions_owned", Help: "Partitions that this instance owns."})),
	}
}

// register returns the collector that is registered under c's name: c, unless an earlier
// Aggregator of the same process has registered its own.
func register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if reg == nil {
		return c
	}
	err := reg.Register(c)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if old, ok := already.ExistingCollector.(C); ok {
			return old
		}
	}
	return c
}

func label(partition int32) string { return strconv.Itoa(int(partition)) }

func (p *partition) label() string { return label(p.id) }

func (m *metrics) opened(p *partition) {
	m.owned.Inc()
	m.takeovers.WithLabelValues(p.label()).Inc()
	m.keys.WithLabelValues(p.label()).Set(float64(p.shard.Keys()))
}

func (m *metrics) closed(p *partition) {
	if p.opened.Load() {
		m.owned.Dec()
	}
	m.keys.DeleteLabelValues(p.label())
	m.stateBytes.DeleteLabelValues(p.label())
	m.lastDurable.DeleteLabelValues(p.label())
	m.notOwned(p.id)
}

// notOwned takes back what is told of a partition's reading while it is owned.
func (m *metrics) notOwned(partition int32) {
	for _, v := range []*prometheus.GaugeVec{m.lastFetch, m.loopLag, m.loopSeconds} {
		v.DeleteLabelValues(label(partition))
	}
}

// heats shows the partitions' rates, in place of those that were shown last.
func (m *metrics) heats(list, last []heat) {
	for _, h := range last {
		if !slices.ContainsFunc(list, func(now heat) bool { return now.partition == h.partition }) {
			m.eventRates.DeleteLabelValues(strconv.Itoa(int(h.partition)))
		}
	}
	for _, h := range list {
		m.eventRates.WithLabelValues(strconv.Itoa(int(h.partition))).Set(round(h.rate, 10))
	}
}

// durable notes that all that the partition has counted is.
func (m *metrics) durable(p *partition) {
	if p.ctx.Err() == nil {
		m.lastDurable.WithLabelValues(p.label()).Set(seconds(time.Now()))
	}
}

func (m *metrics) kafkaError(err error) { m.kafkaErrors.WithLabelValues(troubleOf(err)).Inc() }

func (m *metrics) checkpointed(p *partition, took time.Duration) {
	m.durable(p)
	m.checkpoints.Observe(took.Seconds())
	p.lockTimed()
	keys, size := p.shard.Keys(), p.shard.Bytes()
	p.unlockTimed()
	m.holds(p, keys, size)
}

// holds shows how much a partition has in memory.
func (m *metrics) holds(p *partition, keys int, size int64) {
	m.keys.WithLabelValues(p.label()).Set(float64(keys))
	m.stateBytes.WithLabelValues(p.label()).Set(float64(size))
}

// matchesOf are the counters of a set's limits, by their index.
func (m *metrics) matchesOf(set *rules.Set) []prometheus.Counter {
	out := make([]prometheus.Counter, len(set.Limits))
	for i, l := range set.Limits {
		out[i] = m.matches.WithLabelValues(l.Name)
	}
	return out
}

// tell adds what a partition's shard has tallied since it was asked last: a counter that several processors
// write to costs more than a step's arithmetic. The partition is locked.
func (m *metrics) tell(p *partition) {
	t := p.shard.Tally()
	add := func(c prometheus.Counter, n *uint64) {
		if *n > 0 {
			c.Add(float64(*n))
			*n = 0
		}
	}
	add(m.events.counted, &t.Counted)
	add(m.events.unmatched, &t.Unmatched)
	add(m.events.repeat, &t.Repeat)
	add(m.events.late, &t.Late)
	add(m.events.tooOld, &t.TooOld)
	add(m.events.noTime, &t.NoTime)
	add(m.events.unknownRefund, &t.UnknownRefund)
	add(m.events.replayed, &t.Replayed)
	add(m.events.producerRepeat, &t.ProducerRepeat)
	add(m.verdictsOver, &t.Over)
	add(m.overtaken, &t.Overtaken)
	add(m.droppedIPs, &t.DroppedIPs)
	add(m.lost, &t.Lost)
	for i := range t.Matches {
		add(p.rules.matches[i], &t.Matches[i])
	}
}

func (m *metrics) skipped(s rules.Skip) { m.notMatched.WithLabelValues(s.Rule.Name, s.Reason).Inc() }

func (m *metrics) deadLetter(reason string) {
	m.events.deadLetter.Inc()
	m.decodeErrors.WithLabelValues(reason).Inc()
}

func (m *metrics) published(is *shard.Published) {
	if is.Value == nil {
		return // a tombstone
	}
	m.verdictsOut.WithLabelValues(is.Verdict.Rule, is.Verdict.State.String(), is.Verdict.Mode.String()).Inc()
	if is.Broker != event.NoTime {
		m.toVerdict.Observe(max(0, now()-is.Broker).Duration().Seconds()) // a broker's clock may be ahead
	}
}
