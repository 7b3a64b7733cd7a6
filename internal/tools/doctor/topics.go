package doctor

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

func (e *kafkaSide) checkTopics(context.Context) outcome {
	cfg := topics.Config{Prefix: e.cfg.Prefix, ProducerTime: e.cfg.ProducerTime,
		Partitions: int32(e.cfg.Partitions), Replication: int16(e.cfg.Replication)} //nolint:gosec // validated
	if e.set != nil {
		cfg.LongestVerdict = e.set.LongestVerdict().Duration()
	}
	state, err := topics.Check(e.cfg.Kafka.Brokers, e.sarama(), cfg)
	if refused(err) {
		return found(fail("topics", "see acls", "%v", err))
	}
	if err != nil {
		return found(fail("topics", "", "%v", err))
	}
	keep := func() { e.layout = state }
	if len(state.Topics) == 0 {
		create := "start an aggregator, which creates them; if it has no right to:"
		for _, f := range state.Missing {
			create += "\n" + f.Fix
		}
		return outcome{keep: keep, results: []Result{warn("topics", create,
			"there are no topics with prefix %q yet; check --prefix", e.cfg.Prefix)}}
	}
	var results []Result
	for _, f := range state.Faults {
		if f.Must {
			results = append(results, fail("topics", f.Fix, "%s", f.Text))
		} else {
			results = append(results, warn("topics", f.Fix, "%s", f.Text))
		}
	}
	for _, f := range state.Missing {
		results = append(results, warn("topics", "an aggregator creates it when it starts; or: "+f.Fix, "%s", f.Text))
	}
	if len(results) == 0 {
		results = []Result{ok("topics", "%d topics with prefix %q; co-partitioned topics have %s each", len(state.Topics), e.cfg.Prefix, words.Plural(int(state.Partitions), "partition"))}
	}
	return outcome{results: worst(results), keep: keep}
}

// checkReplication checks that the topics survive the loss of a broker, and that all replicas are
// in sync.
func (e *kafkaSide) checkReplication(context.Context) outcome {
	results := judged("replication", lookAtTopics(e.cfg, e.names, e.layout))
	var single []string
	least := int16(0)
	for _, name := range e.names.All() {
		t, there := e.layout.Topics[name]
		if !there {
			continue
		}
		if least == 0 || t.Replication < least {
			least = t.Replication
		}
		if t.Replication < 3 && name != e.names.DeadLetters {
			single = append(single, fmt.Sprintf("%s (%d)", name, t.Replication))
		}
	}
	if len(single) > 0 {
		fix := "run at least three brokers, and reassign the partitions to three replicas (kafka-reassign-partitions.sh)"
		if len(e.brokers) >= 3 {
			fix = "reassign the partitions to three replicas (kafka-reassign-partitions.sh), and then set min.insync.replicas=2"
		}
		results = append(results, warn("replication", fix, "fewer than three replicas: %s: losing one broker stops the engine, or loses its counts", health.Some(single)))
	}
	if len(results) == 0 && least == 0 {
		results = []Result{skip("replication", "there are no topics yet")}
	} else if len(results) == 0 {
		results = []Result{ok("replication", "at least %d replicas, all in sync", least)}
	}
	return found(worst(results)...)
}

// lookAtTopics observes the topics that there are.
func lookAtTopics(cfg Config, names topics.Names, layout *topics.State) *health.Observations {
	o := cfg.look()
	var k health.Kafka
	for _, name := range names.All() {
		is, there := layout.Topics[name]
		t := health.Topic{Name: name, Missing: !there, Partitions: int(is.Partitions), Leaderless: is.Leaderless, Thin: is.Behind}
		switch name {
		case names.Events:
			k.Events = t
		case names.Verdicts:
			k.Verdicts = t
		default:
			k.More = append(k.More, t)
		}
	}
	o.Kafka.Took(k, nil, o.Now)
	return o
}

const (
	day               = 24 * time.Hour
	minEventRetention = day
	keyRoom           = 64 << 10 // in a table record, for its key and its batch
)

// checkRetention compares how long records are kept with how long they are needed.
func (e *kafkaSide) checkRetention(context.Context) outcome {
	var results []Result
	short := func(topic string, least time.Duration, status Status, why string) {
		have, limited := e.retention(topic)
		if limited && have < least {
			results = append(results, Result{"retention", status,
				fmt.Sprintf("%s keeps records for %s, %s is needed: %s", topic, human(have), human(least), why), e.alter(topic, "retention.ms", least.Milliseconds())})
		}
	}
	short(e.names.Events, minEventRetention, Warn, "events that wait longer than that, while no aggregator runs, are never counted")
	var longest, window time.Duration
	var rule, strict string
	if e.set != nil {
		block, of := e.set.LongestBlock()
		strictest, by := e.set.LongestStrict()
		longest, rule, window, strict = block.Duration(), of, strictest.Duration(), by
	}
	short(e.names.Verdicts, longest, Fail, fmt.Sprintf("when the blocklist is rebuilt, a block of rule %s would be lost before it ends", rule))
	short(e.names.Verdicts, window, Fail, fmt.Sprintf("when Redis has lost its memory, what rule %s has counted would be lost, and its limit exceeded", strict))
	for _, topic := range []string{e.names.Events, e.names.Loop, e.names.Verdicts} {
		if n, err := strconv.ParseInt(e.layout.Topics[topic].Settings["retention.bytes"], 10, 64); err == nil && n >= 0 {
			results = append(results, warn("retention", e.alter(topic, "retention.bytes", -1),
				"%s: retention.bytes is %d: a burst may delete records too early", topic, n))
		}
	}
	if len(results) > 0 {
		return found(worst(results)...)
	}
	have, limited := e.retention(e.names.Verdicts)
	switch {
	case e.layout.Topics[e.names.Verdicts].Settings == nil:
		return found(skip("retention", "the settings of %s are unknown", e.names.Verdicts))
	case !limited:
		return found(ok("retention", "verdicts are kept without limit"))
	case e.set == nil:
		return found(ok("retention", "verdicts are kept for %s; use --rules to compare that with the longest block", human(have)))
	}
	return found(ok("retention", "verdicts are kept for %s, the longest block is %s (rule %s)", human(have), human(longest), rule))
}

// retention returns false for a topic without a limit, and for an unknown one.
func (e *kafkaSide) retention(topic string) (time.Duration, bool) {
	ms, err := strconv.ParseInt(e.layout.Topics[topic].Settings["retention.ms"], 10, 64)
	if err != nil || ms < 0 {
		return 0, false
	}
	const most = 100 * 365 * day // a longer one might overflow a Duration
	return time.Duration(min(ms, most.Milliseconds())) * time.Millisecond, true
}

func (e *kafkaSide) alter(topic, key string, value int64) string {
	return e.kafkaCommand("kafka-configs.sh", "--alter --entity-type topics --entity-name %s --add-config '%s=%d'", topic, key, value)
}

// checkStateSize compares the largest state of a key with the size limit of the table's records.
func (e *kafkaSide) checkStateSize(context.Context) outcome {
	limit, err := strconv.ParseInt(e.layout.Topics[e.names.Table].Settings["max.message.bytes"], 10, 64)
	switch {
	case e.set == nil:
		return found(skip("state-size", "use --rules to compare the largest state of a key with the limit of %s", e.names.Table))
	case err != nil:
		return found(skip("state-size", "the settings of %s are unknown", e.names.Table))
	}
	size, dims := e.set.LargestState()
	if need := int64(size + keyRoom); need > limit {
		return found(fail("state-size", e.alter(e.names.Table, "max.message.bytes", max(2<<20, need)),
			"a key of %s may need %d bytes of state, but %s refuses records above %d bytes: its partition would stop", health.Some(dims), size, e.names.Table, limit))
	}
	return found(ok("state-size", "a key needs at most %d bytes, %s allows %d", size, e.names.Table, limit))
}
