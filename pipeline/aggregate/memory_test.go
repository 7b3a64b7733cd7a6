package aggregate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/retry"
	"github.com/tallygate/tallygate/internal/servers"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner/memlog"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

// inMemory runs a test on a log in memory: members own their partitions without a group, and no time passes while
// somebody works. It is for what Kafka has no part in.
func inMemory(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Parallel()
	servers.Embedded(t)
	synctest.Test(t, func(t *testing.T) {
		test(t, &rig{t: t, names: topics.NamesOf("memory"), checked: map[string]bool{}, memory: memlog.New(), network: &pipes{at: map[string]*pipe{}}})
	})
}

// inMemoryShows is inMemory for a test that proves a sentence of the rule language.
func inMemoryShows(t *testing.T, sentence string, test func(t *testing.T, r *rig)) {
	t.Parallel()
	t.Run(sentence, func(t *testing.T) { inMemory(t, test) })
}

// startInMemory starts a member that owns all partitions, or its share of them.
func (r *rig) startInMemory(cfg Config) *member {
	r.t.Helper()
	cfg.Brokers, cfg.dial = []string{"memory:9"}, r.network.dial
	file := cfg.RuleFile
	cfg.RuleFile = RuleFile{} // versions come from reload
	a, err := New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(file.Source) > 0 {
		a.book.current.Store(r.versionOf(a, file))
	}
	a.found.Store(&topics.Layout{Names: r.names, Partitions: rigPartitions})
	a.aux = owner.NewAux(r.memory.NewProducer(), a.budget, a.metrics.kafkaError)
	a.env = a.partitionEnv()
	a.env.Kafka, a.env.Packs = r.memory, func() bool { return true }
	a.online.Store(true)
	ctx, stop := context.WithCancel(context.WithoutCancel(r.t.Context()))
	m := &member{Aggregator: a, stop: stop, done: make(chan error, 1), share: r.share}
	if r.share == nil {
		m.share = []int32{0, 1, 2, 3}
	}
	meet(m)
	go func() {
		auxCtx, stopAux := context.WithCancel(context.Background())
		var aux sync.WaitGroup
		aux.Go(func() { a.aux.Run(auxCtx) })
		for ctx.Err() == nil && a.fatal() == nil {
			r.session(ctx, m)
		}
		stopAux()
		aux.Wait()
		a.CloseIdleConnections()
		m.done <- a.fatal()
	}()
	r.t.Cleanup(func() { m.end(r.t) })
	return m
}

// versionOf is a file's version of the rules: the next one, unless the last has the same rules.
func (r *rig) versionOf(a *Aggregator, file RuleFile) *owner.Rules {
	r.t.Helper()
	set, err := a.cfg.compile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.version == 0 || r.versionHash != set.Hash {
		r.version, r.versionHash = r.version+1, set.Hash
	}
	return a.book.version(r.version, set)
}

// reload makes a file the member's rules, as if the rules topic had it.
func (r *rig) reload(m *member, file RuleFile) {
	r.t.Helper()
	v := r.versionOf(m.Aggregator, file)
	m.book.current.Store(v)
	for _, p := range m.owned() {
		p.Use(v)
	}
}

// session owns the member's partitions until ctx or the session ends.
func (r *rig) session(ctx context.Context, m *member) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	s := &owner.Session{ConsumerGroupSession: memorySession{ctx: ctx}, End: end}
	m.begin(s)
	defer m.begin(nil)
	var all sync.WaitGroup
	for _, id := range m.share {
		all.Go(func() {
			for ctx.Err() == nil {
				p := owner.New(&m.env, id, s)
				m.enter(p)
				if p.Open() == nil {
					r.feed(ctx, p)
				}
				p.Close()
				if owner.EndsSession(p.Err()) {
					end(p.Err())
				}
				retry.Sleep(ctx, minBackoff)
			}
		})
	}
	all.Wait()
}

// feed reads both sources of a partition until it or its session ends.
func (r *rig) feed(ctx context.Context, p *owner.Partition) {
	for ctx.Err() == nil && p.Err() == nil {
		changed, idle := r.memory.Changed(), true
		for src, topic := range []string{shard.Input: r.names.Events, shard.Loop: r.names.Loop} {
			var next int64
			p.View(func(s *shard.Shard, _ *owner.Rules) { next = s.Log().Next(shard.Source(src)) })
			records := r.memory.Records(topic, p.ID(), next)
			if n := min(bundleSize, len(records)); n > 0 {
				p.Process(&owner.Bundle{Source: shard.Source(src), Batches: []kafkalog.Batch{kafkalog.Of(records[:n]...)}, Place: records[n-1].Offset + 1})
				idle = false
			}
		}
		if idle {
			select {
			case <-changed:
			case <-p.Done():
			case <-ctx.Done():
			}
		}
	}
}

// memorySession is one in which nothing is committed: checkpoints say where to continue.
type memorySession struct {
	sarama.ConsumerGroupSession
	ctx context.Context
}

func (s memorySession) Context() context.Context               { return s.ctx }
func (memorySession) MarkOffset(string, int32, int64, string)  {}
func (memorySession) ResetOffset(string, int32, int64, string) {}

// up is nil when the member has taken all of its partitions over.
func (m *member) up() error {
	if m.share == nil {
		return m.Ready()
	}
	for _, id := range m.share {
		if p := m.partition(id); p == nil || !p.Live() {
			return fmt.Errorf("partition %d is not taken over", id)
		}
	}
	return nil
}

// toMemory appends what is sent.
func (r *rig) toMemory(msgs []*sarama.ProducerMessage) {
	r.t.Helper()
	for _, m := range msgs {
		rec := kafkalog.Record{}
		if !m.Timestamp.IsZero() {
			rec.Timestamp = m.Timestamp.UnixMilli()
		}
		for _, f := range []struct {
			from sarama.Encoder
			to   *[]byte
		}{{m.Key, &rec.Key}, {m.Value, &rec.Value}} {
			var err error
			if *f.to, err = encoded(f.from); err != nil {
				r.t.Fatal(err)
			}
		}
		var headers [][]byte
		for _, h := range m.Headers {
			headers = append(headers, h.Key, h.Value)
		}
		rec.Headers = record.HeadersOf(headers...)
		r.memory.Append(m.Topic, m.Partition, rec)
	}
}

// fromMemory is records as a client of Kafka has them.
func (r *rig) fromMemory(topic string, partition int32) (out []*sarama.ConsumerMessage) {
	for _, rec := range r.memory.Records(topic, partition, 0) {
		m := &sarama.ConsumerMessage{Topic: topic, Partition: partition, Offset: rec.Offset, Key: slices.Clone(rec.Key), Value: slices.Clone(rec.Value), Timestamp: rec.Time()}
		for {
			key, value, ok := rec.Headers.Next()
			if !ok {
				break
			}
			m.Headers = append(m.Headers, &sarama.RecordHeader{Key: key, Value: value})
		}
		r.described(m)
		out = append(out, m)
	}
	return out
}
