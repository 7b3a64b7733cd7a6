package owner

import (
	"encoding/hex"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
)

// Metrics are the partitions'. Labels are rules, partitions and reasons, and never keys.
type Metrics struct {
	events       eventResults
	decodeErrors *prometheus.CounterVec
	matches      *prometheus.CounterVec
	overshoots   *overshoots
	near         *prometheus.CounterVec
	mismatches   *mismatches
	unmatched    *unmatched
	misplaced    *misplaced
	fuses        *prometheus.CounterVec
	verdictsOut  *prometheus.CounterVec
	verdictsOver prometheus.Counter
	overtaken    prometheus.Counter
	notMatched   *prometheus.CounterVec
	checkpoints  prometheus.Histogram
	pauses       prometheus.Histogram
	lastDurable  *prometheus.GaugeVec
	takeovers    *prometheus.CounterVec
	passedOver   prometheus.Counter
	keys         *prometheus.GaugeVec
	stateBytes   *prometheus.GaugeVec
	toVerdict    prometheus.Histogram
	forwarded    prometheus.Counter
	forwards     prometheus.Counter
	droppedIPs   prometheus.Counter
	suspects     *suspects
	lost         prometheus.Counter
	swept        prometheus.Counter
	owned        prometheus.Gauge
	unpermitted  *prometheus.CounterVec
	permits      *prometheus.CounterVec // ignored
}

// eventResults are the outcomes of an event. An event may have several keys: counted, repeat, late
// and unknown refund are per key.
type eventResults struct {
	counted, unmatched, repeat, late, tooOld, noTime, unknownRefund, told, replayed, producerRepeat, deadLetter prometheus.Counter
}

// verdictBuckets are fine in the range of normal latencies, and include 5 and 25 ms. The broker's
// time has whole milliseconds, so that finer buckets would show nothing.
var verdictBuckets = []float64{.001, .002, .003, .004, .005, .0075, .01, .015, .02, .025, .035, .05, .075, .1, .15, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// pauseBuckets distinguish slices of the planned length from those that delay events.
var pauseBuckets = []float64{50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3}

// NewMetrics registers the metrics. With nil it registers none.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	r := Registry{reg}
	events := r.Counters("events_total", "Events by outcome (counted, repeat, late and unknown_refund: once per key).", "result")
	return &Metrics{
		events: eventResults{
			counted:        events.WithLabelValues("counted"),
			unmatched:      events.WithLabelValues("unmatched"),
			repeat:         events.WithLabelValues("repeat"),
			late:           events.WithLabelValues("late"),
			tooOld:         events.WithLabelValues("too_old"),
			noTime:         events.WithLabelValues("no_time"),
			unknownRefund:  events.WithLabelValues("unknown_refund"),
			told:           events.WithLabelValues("told"),
			replayed:       events.WithLabelValues("replayed"),
			producerRepeat: events.WithLabelValues("producer_repeat"),
			deadLetter:     events.WithLabelValues("dead_letter"),
		},
		decodeErrors: r.Counters("event_decode_errors_total", "Records that contain malformed events, by reason of the first mistake.", "reason"),
		matches:      r.Counters("rule_matches_total", "Events counted under a limit.", "rule"),
		overshoots:   register(r, newOvershoots()),
		near:         r.Counters("near_limit_events_total", "Events that left a key at 80% of a limit or more, and not above it.", "rule"),
		mismatches:   register(r, newMismatches()),
		unmatched:    newUnmatched(),
		misplaced:    register(r, newMisplaced()),
		fuses:        r.Counters("fuses_blown_total", "Fuses blown, counted once per partition.", "rule"),
		notMatched:   r.Counters("rule_skips_total", "Events that a rule could not evaluate, by reason.", "rule", "reason"),
		verdictsOver: r.Counter("verdicts_over_total", "Blocks not published because they had already ended."),
		overtaken:    r.Counter("verdicts_overtaken_total", "Moved ends of blocks not published because a newer change replaced them."),
		verdictsOut:  r.Counters("verdicts_total", "Verdicts published.", "rule", "state", "mode"),
		checkpoints:  r.Histogram("checkpoint_duration_seconds", "Seconds from a checkpoint's cut until its offsets are released.", prometheus.ExponentialBuckets(0.001, 2, 14)),
		pauses:       r.Histogram("checkpoint_pause_seconds", "Seconds that one slice of a checkpoint or sweep made a partition's events wait.", pauseBuckets),
		lastDurable:  r.Gauges("last_checkpoint_timestamp_seconds", "Time at which everything that an owned partition had counted was last known to be durable.", "partition"),
		takeovers:    r.Counters("takeovers_total", "Takeovers of the partition by this instance.", "partition"),
		passedOver:   r.Counter("records_unreadable_total", "Offsets skipped because their records are unreadable."),
		keys:         r.Gauges("state_keys", "Keys in memory.", "partition"),
		stateBytes:   r.Gauges("state_bytes", "Memory used by the keys' states and their index.", "partition"),
		toVerdict:    r.Histogram("event_to_verdict_seconds", "Seconds from the event's broker time until Kafka acknowledges its verdict.", verdictBuckets),
		forwarded:    r.Counter("events_forwarded_total", "Events forwarded to the partition that owns one of their keys."),
		forwards:     r.Counter("forward_records_total", "Records that events were forwarded in: packs, and whole events."),
		droppedIPs:   r.Counter("event_dropped_ips_total", "Events with an invalid ip; they are counted without it."),
		suspects:     newSuspects(r),
		lost:         r.Counter("records_lost_total", "Records deleted by retention before they were counted."),
		swept:        r.Counter("keys_swept_total", "Idle keys evicted."),
		unpermitted:  r.Counters("unpermitted_total", "Events that counted under a strict rule without a permit.", "rule"),
		permits:      r.Counters("permits_ignored_total", "Events whose permits strict limits ignored, by reason.", "reason"),
		owned:        r.Gauge("partitions_owned", "Partitions that this instance owns."),
	}
}

// observe adds a value to a histogram, with its trace as an exemplar if there is one.
func observe(h prometheus.Histogram, value float64, trace event.Trace) {
	if with, ok := h.(prometheus.ExemplarObserver); ok && !trace.IsZero() {
		with.ObserveWithExemplar(value, prometheus.Labels{"trace_id": hex.EncodeToString(trace.ID[:])})
		return
	}
	h.Observe(value)
}

func label(partition int32) string { return strconv.Itoa(int(partition)) }

func (m *Metrics) opened(id int32, keys int) {
	m.owned.Inc()
	m.takeovers.WithLabelValues(label(id)).Inc()
	m.keys.WithLabelValues(label(id)).Set(float64(keys))
}

func (m *Metrics) closed(id int32, opened bool) {
	if opened {
		m.owned.Dec()
	}
	for _, v := range []*prometheus.GaugeVec{m.keys, m.stateBytes, m.lastDurable} {
		v.DeleteLabelValues(label(id))
	}
}

// durable notes that everything that a partition has counted is durable.
func (m *Metrics) durable(id int32) {
	m.lastDurable.WithLabelValues(label(id)).Set(float64(time.Now().UnixMilli()) / 1000)
}

// holds shows how much a partition holds in memory.
func (m *Metrics) holds(id int32, keys int, size int64) {
	m.keys.WithLabelValues(label(id)).Set(float64(keys))
	m.stateBytes.WithLabelValues(label(id)).Set(float64(size))
}

// MatchesOf returns the counters of a set's limits, by their index. All counters of these limits
// exist from here on, and those of fuses: a counter that begins at 1 has not grown.
func (m *Metrics) MatchesOf(set *rules.Set) []prometheus.Counter {
	m.overshoots.know(set)
	for _, r := range set.Rules {
		if r.Fuse > 0 {
			m.fuses.WithLabelValues(r.Name)
		}
	}
	out := make([]prometheus.Counter, len(set.Limits))
	for i, l := range set.Limits {
		out[i] = m.matches.WithLabelValues(l.Name)
		m.near.WithLabelValues(l.Name)
	}
	return out
}

// tell adds the tally of a partition's shard to the counters, and clears it. A counter that several
// processors write to costs more than a step's arithmetic, so the shard has its own.
func (m *Metrics) tell(t *shard.Tally, v *Rules) {
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
	add(m.events.told, &t.Told)
	add(m.events.replayed, &t.Replayed)
	add(m.events.producerRepeat, &t.ProducerRepeat)
	add(m.verdictsOver, &t.Over)
	add(m.overtaken, &t.Overtaken)
	add(m.droppedIPs, &t.DroppedIPs)
	add(m.lost, &t.Lost)
	for i, n := range t.Unpermitted {
		if n > 0 {
			m.unpermitted.WithLabelValues(v.Set.Rules[i].Name).Add(float64(n))
			t.Unpermitted[i] = 0
		}
	}
	for reason, n := range map[string]*uint64{"ahead": &t.PermitsAhead, "too_old": &t.PermitsTooOld} {
		if *n > 0 {
			add(m.permits.WithLabelValues(reason), n)
		}
	}
	for i := range t.Matches {
		add(v.Matches[i], &t.Matches[i])
		if n := &t.Near[i]; *n > 0 {
			add(m.near.WithLabelValues(v.Set.Limits[i].Name), n)
		}
		if o := &t.Overshoot[i]; !o.Empty() {
			m.overshoots.add(v.Set.Limits[i].Name, o)
		}
	}
}

func (m *Metrics) skipped(s rules.Skip) { m.notMatched.WithLabelValues(s.Rule.Name, s.Reason).Inc() }

func (m *Metrics) deadLetter(reason string) {
	m.events.deadLetter.Inc()
	m.decodeErrors.WithLabelValues(reason).Inc()
}

func (m *Metrics) published(is *shard.Published) {
	if is.Value == nil {
		return // a tombstone
	}
	m.verdictsOut.WithLabelValues(is.Verdict.Rule, is.Verdict.State.String(), is.Verdict.Mode.String()).Inc()
	if is.Broker != event.NoTime {
		// A broker's clock may be ahead.
		observe(m.toVerdict, max(0, now()-is.Broker).Duration().Seconds(), is.Verdict.Trace)
	}
}
