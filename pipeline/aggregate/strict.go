package aggregate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
)

// StrictRecord is an owner's record about strict limits, at its place in the verdict topic.
type StrictRecord = shard.Strict

// Partition is one that this instance owns.
type Partition = owner.Partition

// following serves a publisher of strict limits beside the partitions.
type following struct {
	*instance
	inputEnds, loopEnds logEnds
}

// FollowRules has a function told which rules this instance runs: their version as
// owners say it (protocol.RulesVersion), their record in the rules topic, and the set. It must not block. Call it before Run.
func (a *instance) FollowRules(told func(version uint64, record []byte, set *rules.Set)) {
	a.rulesTold = told
}

// InputEnd returns where a partition of the event topic ends now, as far as this instance may read it.
func (a *following) InputEnd(ctx context.Context, partition int32) (int64, error) {
	return a.inputEnds.of(ctx, partition, func(ctx context.Context) (map[int32]int64, error) { return a.readable(ctx, a.names.Events) })
}

// LoopEnd returns where a partition of the topic of forwarded events ends now.
func (a *following) LoopEnd(ctx context.Context, partition int32) (int64, error) {
	return a.loopEnds.of(ctx, partition, func(ctx context.Context) (map[int32]int64, error) { return a.readable(ctx, a.names.Loop) })
}

func (a *following) readable(ctx context.Context, topic string) (map[int32]int64, error) {
	return a.fetcher.ReadableEnds(ctx, topic, a.found.Load().Partitions)
}

// endsWithin bounds a question for the ends of all partitions.
const endsWithin = 10 * time.Second

// logEnds asks for the ends of all partitions at once, when several want theirs at the same time. The
// zero value is ready to use.
type logEnds struct {
	mu   sync.Mutex
	busy bool
	next *endsAsked // the question that has not been asked yet
}

// endsAsked is one question.
type endsAsked struct {
	done chan struct{}
	ends map[int32]int64
	err  error
}

// of returns a partition's end, from a question that was not asked before the call.
func (l *logEnds) of(ctx context.Context, partition int32, ask func(context.Context) (map[int32]int64, error)) (int64, error) {
	l.mu.Lock()
	q := l.next
	if q == nil {
		q = &endsAsked{done: make(chan struct{})}
		l.next = q
		if !l.busy {
			l.busy = true
			go l.run(context.WithoutCancel(ctx), ask)
		}
	}
	l.mu.Unlock()
	select {
	case <-q.done:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	end, ok := q.ends[partition] // others' leaders may be away
	switch {
	case ok:
		return end, nil
	case q.err != nil:
		return 0, q.err
	}
	return 0, fmt.Errorf("no answer of Kafka says where partition %d ends", partition)
}

// run asks until nobody wants to know.
func (l *logEnds) run(ctx context.Context, ask func(context.Context) (map[int32]int64, error)) {
	for {
		l.mu.Lock()
		q := l.next
		l.next, l.busy = nil, q != nil
		l.mu.Unlock()
		if q == nil {
			return
		}
		limited, cancel := context.WithTimeout(ctx, endsWithin)
		q.ends, q.err = ask(limited)
		cancel()
		close(q.done)
	}
}
