package aggregate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
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
	lines  *lines // its connections
}

// newGroup connects, but does not join: Consume does.
func (a *instance) newGroup(brokers []string, id string, cfg *sarama.Config) (sarama.ConsumerGroup, error) {
	cfg, lines := tapped(cfg)
	client, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka at %v: %w", brokers, err)
	}
	g, err := sarama.NewConsumerGroupFromClient(id, membership{client})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up the consumer group: %w", err), client.Close())
	}
	return &group{ConsumerGroup: g, agg: a, client: client, lines: lines}, nil
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
		g.agg.faults.note(inGroup, errors.Join(err, cause))
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
	// Once the session has begun it ends by itself, with a last checkpoint. Before, there is nothing to lose: a member
	// that has an id from the broker still leaves, by a new connection, and one with an instance id stays, as ever.
	defer context.AfterFunc(ctx, func() {
		if !own.joined.Load() {
			g.lines.hangUp()
		}
	})()
	err = g.ConsumerGroup.Consume(ctx, names, own)
	return own.joined.Load(), err
}

// Close leaves the group and closes its connections.
func (g *group) Close() error { return errors.Join(g.ConsumerGroup.Close(), g.client.Close()) }

// handler wraps goka's handler for one session.
type handler struct {
	sarama.ConsumerGroupHandler
	agg  *instance
	end  context.CancelCauseFunc
	seen map[string]topics.Topic // the topics right before joining

	joined atomic.Bool // the session has begun
}

func (h *handler) Setup(s sarama.ConsumerGroupSession) error {
	h.joined.Store(true)
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
