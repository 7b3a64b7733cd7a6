package aggregate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
	"github.com/tallygate/tallygate/pipeline/aggregate/budget"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// Aggregator is one member of the group. Make it with New, and call Run once. All its methods may
// be called by any goroutine.
type Aggregator struct {
	*instance
	*ask.Answers
	*following
	watching  watching
	agreement *agreement
}

// New checks cfg. It connects to nothing: Run does.
func New(cfg Config) (*Aggregator, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	a := &instance{
		cfg:     cfg,
		log:     cfg.Logger,
		names:   topics.NamesOf(cfg.Prefix),
		metrics: newMetrics(cfg.Registry),
		budget:  budget.New(cfg.BufferBytes),
		parts:   map[int32]*owner.Partition{},
		owns:    map[int32]*ownership{},
	}
	a.metrics.follow(cfg.Registry, a.budget)
	reads, err := cfg.fetching()
	if err == nil {
		reads.HoldBytes, reads.OnHold = a.budget.FetchedLimit(), func(bytes int64) { a.budget.Add(budget.Fetched, bytes) }
		reads.OnError = func(_ string, _ int32, err error) { a.metrics.kafkaError(err) }
		a.logs, err = kafkalog.New(reads)
	}
	if err == nil {
		reads.Far = farBroker
		a.fetcher, err = kafkalog.New(reads)
	}
	a.book, a.audits.some = newRulebook(a), make(chan struct{}, 1)
	var answers *ask.Answers
	if err == nil {
		answers, err = ask.New(ask.Config{
			Instance: asked{a}, Rules: a.book, Group: asked{a},
			Name: a.name(), Advertise: cfg.Advertise, PeerTLS: cfg.PeerTLS, Dial: cfg.dial,
		})
	}
	if err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	a.cfg.peerKey = answers.PeerKey()
	return &Aggregator{
		instance:  a,
		Answers:   answers,
		following: &following{instance: a},
		watching:  watching{instance: a},
		agreement: &agreement{instance: a, unmet: map[string]int{}},
	}, nil
}

// Run joins the group and counts until ctx ends. It then makes durable what was counted, releases
// the partitions, and returns nil.
func (a *Aggregator) Run(ctx context.Context) error {
	defer a.CloseIdleConnections()
	if err := a.open(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("start the aggregator: %w", err)
	}
	defer a.close()
	sideCtx, stopSide := context.WithCancel(context.WithoutCancel(ctx))
	auxCtx, stopAux := context.WithCancel(context.WithoutCancel(ctx))
	var wg, aux sync.WaitGroup
	defer aux.Wait()
	defer stopAux() // behind all that writes by it
	defer wg.Wait()
	defer stopSide()
	aux.Go(func() { a.aux.Run(auxCtx) })
	wg.Go(func() { a.watching.watchHeat(sideCtx) })
	wg.Go(func() { a.watching.watch(sideCtx) })
	wg.Go(func() { a.watching.watchLag(sideCtx) })
	wg.Go(func() { a.agreement.run(sideCtx) })
	wg.Go(func() { a.book.run(sideCtx) })
	wg.Go(func() { a.audits.run(sideCtx, a.log, a.writeAudit) })

	pause := retry.Backoff{Min: minBackoff, Max: maxBackoff}
	for {
		err := a.runProcessor(ctx)
		switch {
		case a.fatal() != nil:
			return a.fatal()
		case ctx.Err() != nil:
			return nil
		}
		wait := pause.Next()
		a.faults.note(inGroup, err)
		a.log.Error("the processor stopped; building a new one", "error", err, "retry_seconds", wait.Seconds())
		if !retry.Sleep(ctx, wait) {
			return nil
		}
	}
}

// StateBytes estimates the memory of the keys' states here.
func (a *Aggregator) StateBytes() (sum int64) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, p := range a.parts {
		sum += p.StateBytes()
	}
	return sum
}

// Ready returns nil if this instance is a member of the group, and each of its partitions is
// recovered and being read: Kafka answers its fetches, even if only with "no records".
func (a *Aggregator) Ready() error {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.session == nil {
		return errors.New("not in a session of the consumer group")
	}
	now := time.Now()
	for _, id := range a.session.Claims()[a.names.Events] {
		p := a.parts[id]
		if p == nil || !p.Live() {
			if o := a.owns[id]; o != nil && o.failure() != nil {
				return fmt.Errorf("partition %d failed, and is taken over again: %w", id, o.failure())
			}
			return fmt.Errorf("partition %d is not recovered yet", id)
		}
		if err := p.Unanswered(now); err != nil {
			return err
		}
	}
	return nil
}
