package owner_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/budget"
	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner/memlog"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// group has one partition, whose owners write to a log in memory.
type group struct {
	t   *testing.T
	log *memlog.Log
	env owner.Env
}

// one is an owner of the partition.
type one struct {
	*owner.Partition
	session context.Context
	release context.CancelFunc
}

// third is a rule that blocks at the third event.
const third = `{name: r, match: {api: "*"}, limit: 3, per: year, window: calendar, then: {block: until-reset}}`

func compile(t *testing.T, rule string) *rules.Set {
	t.Helper()
	set, err := rules.Compile("test.yaml", []byte(`{apiVersion: tallygate.dev/v1, kind: RuleSet, metadata: {name: test}, spec: {rules: [`+rule+`]}}`))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// inBubble runs a test of owners in a bubble of synctest. They have one rule.
func inBubble(t *testing.T, rule string, test func(t *testing.T, g *group)) {
	set := compile(t, rule)
	synctest.Test(t, func(t *testing.T) {
		log, memory, metrics := memlog.New(), budget.New(64<<20), owner.NewMetrics(nil)
		aux := owner.NewAux(log.NewProducer(), memory, func(err error) { t.Error(err) })
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		t.Cleanup(stop)
		go aux.Run(ctx)
		test(t, &group{t, log, owner.Env{
			Names: topics.NamesOf("memory"), Partitions: 1, Kafka: log, Aux: aux, Metrics: metrics, Instance: "one", MaxDeadLetter: 1 << 10,
			Rules: book{&owner.Rules{Number: 1, Set: set, Matches: metrics.MatchesOf(set)}}, Log: slog.New(slog.DiscardHandler),
			CheckpointEvery: time.Hour, Forwarding: owner.NewForwarding(memory, 1), Closed: func(*owner.Partition) {},
			Fail: func(err error) error { return fmt.Errorf("%w: %w", owner.ErrFatal, err) },
		}})
	})
}

// book has one version of the rules.
type book struct{ rules *owner.Rules }

func (b book) Refresh(context.Context) error { return nil }
func (b book) Current() *owner.Rules         { return b.rules }
func (b book) Shared() bool                  { return false }
func (b book) FailedAt() (int64, error)      { return 0, nil }

// session is one that commits nothing.
type session struct {
	sarama.ConsumerGroupSession
	ctx context.Context
}

func (s session) Context() context.Context               { return s.ctx }
func (session) MarkOffset(string, int32, int64, string)  {}
func (session) ResetOffset(string, int32, int64, string) {}

// takeOver makes a new owner, whatever the one before does.
func (g *group) takeOver() *one {
	g.t.Helper()
	ctx, end := context.WithCancelCause(context.WithoutCancel(g.t.Context()))
	p := owner.New(&g.env, 0, &owner.Session{ConsumerGroupSession: session{ctx: ctx}, End: end})
	if err := p.Open(); err != nil {
		g.t.Fatal(err)
	}
	return &one{p, ctx, func() { end(nil) }}
}

// close releases the owner, and returns how long that took.
func (o *one) close() time.Duration {
	began := time.Now()
	o.release()
	o.Close()
	return time.Since(began)
}

// emit appends events of a user to the topic.
func (g *group) emit(n int) {
	for range n {
		g.log.Append(g.env.Names.Events, 0, kafkalog.Record{Value: []byte(`{"uid":"u","api":"a"}`)})
	}
}

// read gives an owner what it has not counted, and waits for what follows.
func (g *group) read(o *one) {
	if records := g.log.Records(g.env.Names.Events, 0, o.next()); len(records) > 0 {
		o.Process(&owner.Bundle{Batches: []kafkalog.Batch{kafkalog.Of(records...)}, Place: records[len(records)-1].Offset + 1})
	}
	synctest.Wait()
}

func (o *one) next() (next int64) {
	o.View(func(s *shard.Shard, _ *owner.Rules) { next = s.Log().Next(shard.Input) })
	return next
}

// verdicts returns the published ones.
func (g *group) verdicts() (list []verdict.Verdict) {
	g.t.Helper()
	for _, rec := range g.log.Records(g.env.Names.Verdicts, 0, 0) {
		if fenced.IsOwnerRecord(rec.Key) {
			continue
		}
		v, err := verdict.Parse(rec.Value)
		if err != nil {
			g.t.Fatal(err)
		}
		list = append(list, v)
	}
	return list
}

// A verdict is in its topic behind the state that it follows from, and has that one's offset.
func TestNoVerdictIsAheadOfItsState(t *testing.T) {
	inBubble(t, third, func(t *testing.T, g *group) {
		o := g.takeOver()
		defer o.close()
		g.log.Room(g.env.Names.Table, 0, 0)
		g.emit(3)
		g.read(o)
		if got := g.verdicts(); len(got) != 0 {
			t.Fatalf("published ahead of its state: %+v", got)
		}
		g.log.Room(g.env.Names.Table, 0, -1)
		synctest.Wait()
		got := g.verdicts()
		if len(got) != 1 || got[0].State != verdict.Block {
			t.Fatalf("published: %+v", got)
		}
		if s := g.log.Records(g.env.Names.Table, 0, got[0].Seq)[0]; string(s.Key) != "uid=u" {
			t.Errorf("at the verdict's seq is the state of %q", s.Key)
		}
	})
}

// An owner that was replaced, and does not know it, appends nothing any more: what it held back is refused, and its
// session ends. Its successor has counted the same events.
func TestAReplacedOwnerAppendsNothing(t *testing.T) {
	inBubble(t, third, func(t *testing.T, g *group) {
		old := g.takeOver()
		g.log.Room(g.env.Names.Table, 0, 0)
		g.emit(3)
		g.read(old) // it wants the state in the changelog, and waits
		successor := g.takeOver()
		defer successor.close()
		g.log.Room(g.env.Names.Table, 0, -1)
		g.read(successor)
		if !errors.Is(old.Err(), fenced.ErrFenced) || !errors.Is(context.Cause(old.session), fenced.ErrFenced) {
			t.Errorf("the old owner ended with %v, its session with %v", old.Err(), context.Cause(old.session))
		}
		old.close()
		if got := g.verdicts(); len(got) != 1 || successor.next() != 3 {
			t.Errorf("published: %+v; the successor is at %d", got, successor.next())
		}
	})
}

// A release does not wait for a log that takes nothing: the next owner counts again what is not durable.
func TestAReleaseWaitsForNoLogThatTakesNothing(t *testing.T) {
	inBubble(t, third, func(t *testing.T, g *group) {
		g.emit(2)
		o := g.takeOver()
		g.read(o)
		o.close()
		g.emit(1)
		o = g.takeOver()
		if o.next() != 2 {
			t.Fatalf("the next owner begins at %d: the last checkpoint covers 2", o.next())
		}
		g.log.Room(g.env.Names.Table, 0, 0)
		g.read(o)
		if took := o.close(); took != 5*time.Second {
			t.Errorf("released after %v", took)
		}
		g.log.Room(g.env.Names.Table, 0, -1)
		o = g.takeOver()
		defer o.close()
		if o.next() != 2 {
			t.Errorf("begins at %d: what was not durable is to be counted again", o.next())
		}
		g.read(o)
		if got := g.verdicts(); len(got) != 1 || got[0].Cause.Offset != 2 {
			t.Errorf("published: %+v", got)
		}
	})
}
