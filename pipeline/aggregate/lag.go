package aggregate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

const (
	lagEvery = 500 * time.Millisecond

	// askLagEvery is the interval at which Kafka is asked for the partitions' ends and the group's offsets.
	askLagEvery = 3 * time.Second

	// freshAnswer is the greatest age of Kafka's answer with which a fully counted partition is shown as caught up,
	// and not as some tenths of a second behind.
	freshAnswer = 2 * time.Second
)

// standing is the progress of a partition of the event topic, whichever instance owns it.
type standing struct {
	end      int64     // of the partition, as Kafka last answered; -1: never
	endAt    time.Time // when it answered
	next     int64     // the first offset not counted, as far as is known
	inStepAt time.Time // when the partition was last known to be fully counted
	mark     int64     // an end that Kafka told at markAt, for partitions of others
	markAt   time.Time
}

// lags follows all partitions of the event topic. Its methods are for one goroutine.
type lags struct {
	agg *instance
	of  []standing
}

// watchLag shows until ctx ends how far each partition is counted, whichever instance owns it. It
// knows the partitions that this instance owns; for the others it uses the group's committed
// offsets.
func (a *watching) watchLag(ctx context.Context) {
	l := &lags{agg: a.instance, of: make([]standing, a.found.Load().Partitions)}
	for i := range l.of {
		l.of[i] = standing{end: -1, mark: -1, inStepAt: time.Now()}
	}
	told := make(chan offsetsTold, 1)
	asking, askedAt := false, time.Time{}
	for retry.Sleep(ctx, lagEvery) {
		if !asking && time.Since(askedAt) >= askLagEvery {
			asking, askedAt = true, time.Now()
			a.asking.start(func() { told <- a.askOffsets(ctx) }) // do not wait for an unreachable Kafka
		}
		select {
		case t := <-told:
			asking = false
			l.tell(t)
		default:
		}
		l.show(time.Now())
	}
}

// offsetsTold is Kafka's answer about all partitions.
type offsetsTold struct {
	at             time.Time // of the question
	ends, counted  map[int32]int64
	endsErr, group error
}

// askOffsets asks for every partition's end and the group's committed offset.
func (a *watching) askOffsets(ctx context.Context) offsetsTold {
	ctx, cancel := context.WithTimeout(ctx, 2*askLagEvery)
	defer cancel()
	t := offsetsTold{at: time.Now()}
	t.ends, t.endsErr = a.fetcher.Ends(ctx, a.names.Events, a.found.Load().Partitions)
	if t.counted, t.group = a.committedOffsets(); t.group == nil {
		t.group = a.startsOfUncommitted(ctx, t.counted)
	}
	if err := errors.Join(t.endsErr, t.group); ctx.Err() == nil || !errors.Is(err, context.Canceled) {
		a.faults.note("asking for offsets", err)
	}
	for _, err := range []error{t.endsErr, t.group} {
		if err != nil && !errors.Is(err, context.Canceled) {
			a.metrics.kafkaError(err)
		}
	}
	return t
}

// committedOffsets returns the group's offsets of the event topic, -1 where there is none.
func (a *watching) committedOffsets() (map[int32]int64, error) {
	admin, err := sarama.NewClusterAdminFromClient(a.clients.bulk)
	if err != nil {
		return nil, fmt.Errorf("ask for the group's offsets: %w", err)
	}
	var ids []int32
	for id := range a.found.Load().Partitions {
		ids = append(ids, id)
	}
	offsets, err := admin.ListConsumerGroupOffsets(a.names.Group, map[string][]int32{a.names.Events: ids})
	if err == nil && !errors.Is(offsets.Err, sarama.ErrNoError) {
		err = offsets.Err
	}
	if err != nil {
		_ = a.clients.bulk.RefreshCoordinator(a.names.Group) // sarama may remember one that is gone
		return nil, fmt.Errorf("ask for the group's offsets: %w", err)
	}
	out := map[int32]int64{}
	for _, id := range ids {
		if b := offsets.GetBlock(a.names.Events, id); b != nil && errors.Is(b.Err, sarama.ErrNoError) {
			out[id] = b.Offset
		}
	}
	return out, nil
}

// startsOfUncommitted fills in the logs' starts where the group has committed nothing.
func (a *watching) startsOfUncommitted(ctx context.Context, counted map[int32]int64) error {
	for _, offset := range counted {
		if offset >= 0 {
			continue
		}
		starts, err := a.fetcher.Starts(ctx, a.names.Events, a.found.Load().Partitions)
		if err != nil {
			return err
		}
		for id, offset := range counted {
			if offset < 0 {
				counted[id] = starts[id]
			}
		}
		return nil
	}
	return nil
}

// tell takes in Kafka's answer.
func (l *lags) tell(t offsetsTold) {
	for id, end := range t.ends {
		if s := &l.of[id]; end >= 0 && t.at.After(s.endAt) {
			s.end, s.endAt = end, t.at
		}
	}
	for id, next := range t.counted {
		s := &l.of[id]
		if p := l.agg.partition(id); p != nil && p.Opened() {
			s.mark = -1
			continue
		}
		s.next = next
		if s.mark >= 0 && next >= s.mark {
			s.inStepAt, s.mark = s.markAt, -1
		}
		if end, ok := t.ends[id]; ok && next >= end {
			s.inStepAt, s.mark = t.at, -1
		} else if ok && s.mark < 0 {
			s.mark, s.markAt = end, t.at
		}
	}
}

// lagging is a partition's lag.
type lagging struct {
	records, loop int64
	seconds       float64
}

// show sets the metrics, and what the status has of them.
func (l *lags) show(now time.Time) {
	m := l.agg.metrics
	shown := make([]lagging, len(l.of))
	defer l.agg.lagging.Store(&shown)
	for id := range l.of {
		s := &l.of[id]
		oldest := event.NoTime
		if p := l.agg.partition(int32(id)); p != nil && p.Opened() {
			oldest = s.owned(p.Standing())
			m.lastFetch.WithLabelValues(label(p.ID())).Set(seconds(p.Heard()))
			forwards := p.Backlog(shard.Loop, now)
			m.loopLag.WithLabelValues(label(p.ID())).Set(float64(forwards.Records))
			shown[id].loop = forwards.Records
			m.loopSeconds.WithLabelValues(label(p.ID())).Set(forwards.Behind.Seconds())
			if p.Err() != nil { // closed meanwhile
				m.notOwned(p.ID())
			}
		}
		if s.end < 0 {
			continue
		}
		lag := max(0, s.end-s.next)
		behind := now.Sub(s.inStepAt)
		if lag == 0 && behind < freshAnswer {
			behind = 0
		}
		if lag > 0 && oldest != event.NoTime {
			behind = max(behind, now.Sub(oldest.Time()))
		}
		m.lagging.WithLabelValues(label(int32(id))).Set(float64(lag))
		m.lagSeconds.WithLabelValues(label(int32(id))).Set(max(0, behind).Seconds())
		shown[id].records, shown[id].seconds = lag, max(0, behind).Seconds()
	}
}

// owned takes in how far a partition of this instance is counted, and returns the broker time of
// the record counted last.
func (s *standing) owned(is owner.Standing) (last event.Micros) {
	if is.End >= 0 {
		if is.EndAt.After(s.endAt) {
			s.end, s.endAt = is.End, is.EndAt
		}
		if is.Next >= is.End {
			s.inStepAt = latest(s.inStepAt, is.EndAt)
		}
	}
	s.next = is.Next
	return is.Last
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
