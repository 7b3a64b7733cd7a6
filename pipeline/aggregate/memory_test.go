package aggregate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/internal/testing/servers"
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
	a, err := New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	a.book.kept = memoryRules{r.memory, r.names.Rules}
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
		var side, aux sync.WaitGroup
		aux.Go(func() { a.aux.Run(auxCtx) })
		side.Go(func() { a.book.run(ctx) })
		side.Go(func() { a.audits.run(ctx, a.log, a.writeAudit) })
		err := a.book.start(ctx)
		for err == nil && ctx.Err() == nil && a.fatal() == nil {
			r.session(ctx, m)
		}
		stop()
		side.Wait()
		stopAux()
		aux.Wait()
		a.CloseIdleConnections()
		m.done <- cmp.Or(err, a.fatal())
	}()
	r.t.Cleanup(func() { m.end(r.t) })
	return m
}

// memoryRules are versions of the rules in memory.
type memoryRules struct {
	log   *memlog.Log
	topic string
}

func (m memoryRules) oldest() (int64, error) { return m.log.Oldest(m.topic, 0) }
func (m memoryRules) newest() (int64, error) { return m.log.Newest(m.topic, 0) }

func (m memoryRules) bounds(context.Context) (oldest, newest int64, err error) {
	newest, err = m.newest()
	return 0, newest, err
}

func (m memoryRules) scan(ctx context.Context, from, to int64, each func(*kafkalog.Record) error) error {
	return m.log.Scan(ctx, m.topic, [16]byte{}, 0, from, to, each)
}

func (m memoryRules) append(value []byte) (int64, error) {
	return m.log.Append(m.topic, 0, kafkalog.Record{Key: []byte(ruleRecordKey), Value: value}), nil
}

// reload has the member publish a file.
func (r *rig) reload(m *member, file RuleFile) {
	r.t.Helper()
	if _, err := m.Reload(r.t.Context(), file); err != nil {
		r.t.Fatal(err)
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
	if len(m.share) == 0 {
		<-ctx.Done()
	}
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
