package aggregate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/retry"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// group is the consumer group as goka sees it. It changes four things:
//
//   - goka waits 5 s after every session; group rejoins by itself.
//   - goka commits what its callbacks have seen; group lets only checkpoints commit, and starts
//     every claim where the partition's checkpoint ends.
//   - goka costs more per message than the rest of the path; group hands it one message per bundle
//     of records.
//   - sarama allocates objects for every record; group reads batches by itself.
type group struct {
	sarama.ConsumerGroup
	agg    *instance
	client sarama.Client
}

// Consume returns when ctx ends, or for an error that rejoining cannot fix.
func (g *group) Consume(ctx context.Context, names []string, h sarama.ConsumerGroupHandler) error {
	wait := minBackoff
	for {
		began := time.Now()
		sctx, end := context.WithCancelCause(ctx)
		joined, err := g.join(sctx, names, h, end)
		cause := context.Cause(sctx)
		end(nil)
		switch {
		case ctx.Err() != nil:
			return nil
		case g.agg.fatal() != nil:
			return g.agg.fatal()
		case errors.Is(err, sarama.ErrFencedInstancedId):
			return g.agg.fail(fmt.Errorf("join the group: another member runs under the instance id %q; give each its own", g.agg.cfg.InstanceID))
		case errors.Is(err, sarama.ErrClosedConsumerGroup):
			return err
		case err == nil && cause == nil:
			g.agg.log.Info("the group is rebalancing")
			if wait = minBackoff; time.Since(began) < minBackoff && !retry.Sleep(ctx, minBackoff) {
				return nil
			}
			continue
		}
		if time.Since(began) > time.Minute {
			wait = minBackoff
		}
		g.agg.metrics.kafkaError(errors.Join(err, cause))
		what := "session ended; joining the group again"
		if !joined {
			what = "cannot join the group yet; retrying"
		}
		g.agg.log.Error(what, "error", errors.Join(err, cause), "retry_seconds", wait.Seconds())
		if !retry.Sleep(ctx, wait) {
			return nil
		}
		if wait = min(2*wait, maxBackoff); !joined {
			wait = min(wait, maxJoinBackoff)
		}
	}
}

// join takes part in one session. It checks the topics first, and stays out of the group if it
// cannot: each member that joins makes all others give up their partitions for a moment. joined
// reports whether the session began.
func (g *group) join(ctx context.Context, names []string, h sarama.ConsumerGroupHandler, end context.CancelCauseFunc) (joined bool, err error) {
	seen, err := g.agg.ownTopics()
	if err != nil {
		return false, fmt.Errorf("look at the topics before joining: %w", err)
	}
	own := &handler{ConsumerGroupHandler: h, agg: g.agg, end: end, seen: seen}
	err = g.ConsumerGroup.Consume(ctx, names, own)
	return own.joined, err
}

const (
	minBackoff = 200 * time.Millisecond
	maxBackoff = 10 * time.Second

	// maxJoinBackoff applies while this member is in no session, because its attempts disturb no
	// other. If the group's coordinator fails, the next one is elected within seconds.
	maxJoinBackoff = 2 * time.Second
)

// handler wraps goka's handler for one session.
type handler struct {
	sarama.ConsumerGroupHandler
	agg  *instance
	end  context.CancelCauseFunc
	seen map[string]topics.Topic // the topics right before joining

	joined bool // the session has begun
}

func (h *handler) Setup(s sarama.ConsumerGroupSession) error {
	h.joined = true
	own, err := h.agg.newSession(s, h.end, h.seen)
	if err != nil {
		return err
	}
	h.agg.begin(own)
	return h.ConsumerGroupHandler.Setup(noCommit{s})
}

func (h *handler) Cleanup(s sarama.ConsumerGroupSession) error {
	defer h.agg.begin(nil)
	defer h.agg.bundles.clear()
	return h.ConsumerGroupHandler.Cleanup(noCommit{s})
}

// ConsumeClaim hands goka what is read of a partition, from where its checkpoint ends. Nothing is
// read from sarama's claim: see membership.
func (h *handler) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	o := h.agg.ownership(c.Partition())
	if o == nil { // the session ended before the partition was opened
		return nil
	}
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	out := make(chan *sarama.ConsumerMessage)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(out)
		o.feed(ctx, c, out)
	})
	err := h.ConsumerGroupHandler.ConsumeClaim(noCommit{s}, bundledClaim{c, out})
	cancel()
	wg.Wait()
	return err
}

// noCommit is a session whose offsets goka cannot move: only a checkpoint may.
type noCommit struct{ sarama.ConsumerGroupSession }

func (noCommit) MarkOffset(string, int32, int64, string)     {}
func (noCommit) MarkMessage(*sarama.ConsumerMessage, string) {}
func (noCommit) ResetOffset(string, int32, int64, string)    {}
func (noCommit) Commit()                                     {}

// bundleSize is how many records goka receives as one message, if so many are there. At this size
// goka costs next to nothing. A larger record batch stays whole.
const bundleSize = 256

// bundle is records of one claim, with their partition.
type bundle struct {
	owner.Bundle
	of *owner.Partition
}

// inFlight holds the bundles that were handed to goka and have not yet come out of its codec.
type inFlight struct {
	byID sync.Map
	last atomic.Uint64
}

func (f *inFlight) put(b *bundle) (id uint64) {
	id = f.last.Add(1)
	f.byID.Store(id, b)
	return id
}

func (f *inFlight) clear() { f.byID.Clear() }

type bundler struct {
	part   *owner.Partition
	reader *kafkalog.Reader
	claim  sarama.ConsumerGroupClaim
	source shard.Source
	out    chan *sarama.ConsumerMessage
	flight *inFlight
	sent   int64 // the offset after the last bundle
}

type bundledClaim struct {
	sarama.ConsumerGroupClaim
	out chan *sarama.ConsumerMessage
}

func (c bundledClaim) Messages() <-chan *sarama.ConsumerMessage { return c.out }

// run fills bundles with the batches that are there, and waits only for the first of a bundle. It
// returns ctx's error, or the error after which nothing more can be read.
func (b *bundler) run(ctx context.Context) error {
	var chunk kafkalog.Chunk
	for {
		next := &bundle{of: b.part, Bundle: owner.Bundle{Source: b.source}}
		for records := 0; records < bundleSize; {
			batch, ok, err := chunk.Next()
			next.Place = max(next.Place, chunk.Place())
			if err == nil && !ok {
				// Batches with nothing but markers move the place all the same.
				if chunk, ok, err = b.more(ctx, next.Place <= b.sent); ok {
					continue
				}
			}
			if err != nil && next.Place <= b.sent {
				return err
			}
			if !ok { // also after an error: send what is here first, and the error comes again
				break
			}
			records += batch.Len()
			next.Batches = append(next.Batches, batch)
		}
		if err := b.send(ctx, next); err != nil {
			return err
		}
		b.sent = next.Place
	}
}

// more takes what has arrived, and waits for it only if wait is set.
func (b *bundler) more(ctx context.Context, wait bool) (kafkalog.Chunk, bool, error) {
	if !wait {
		return b.reader.Poll()
	}
	c, err := b.reader.Next(ctx)
	return c, err == nil, err
}

// send hands over a bundle as a message that holds its id.
func (b *bundler) send(ctx context.Context, next *bundle) error {
	m := &sarama.ConsumerMessage{Topic: b.claim.Topic(), Partition: b.claim.Partition(),
		Value: binary.BigEndian.AppendUint64(nil, b.flight.put(next))}
	select {
	case b.out <- m:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// bundleCodec turns a bundle's message back into the bundle.
type bundleCodec struct{ flight *inFlight }

func (c bundleCodec) Decode(data []byte) (any, error) {
	b, ok := c.flight.byID.LoadAndDelete(binary.BigEndian.Uint64(data))
	if !ok {
		return nil, errors.New("aggregate: unknown bundle id")
	}
	return b, nil
}

func (bundleCodec) Encode(any) ([]byte, error) {
	return nil, errors.New("aggregate: nothing is emitted through goka")
}
