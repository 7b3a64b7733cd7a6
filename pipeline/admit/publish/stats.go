package publish

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/internal/script"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/internal/failure"
)

// Stats describes a Publisher's work.
type Stats struct {
	Partitions []PartitionStats        // those owned, in order
	Failing    bool                    // Redis, Kafka or an owner fails for at least one of them
	LastError  error                   // nil when there was none
	LastErrAt  time.Time               //
	Errors     map[failure.Kind]uint64 // attempts at Redis that failed
	// Lost counts permits whose action never reported its outcome, and that were counted, by the protocol.Limit's
	// name.
	Lost    map[string]uint64
	Applies uint64 // batches that Redis took
	Refills uint64 // how often a partition was read again since Redis had less than before
}

// PartitionStats is one partition's progress.
type PartitionStats struct {
	Partition  int32
	Shard      int
	Strict     bool          // rules are strict, so that the partition is published
	Reached    int64         // the offset to apply next; -1 while unknown
	Lag        int64         // offsets that are known to be acknowledged and are not applied yet
	Grants     bool          // its shard may grant permits
	DoubtSince event.Micros  // since when it may not, by this process' clock; 0 when it may
	Why        string        // it may not
	Ahead      time.Duration // by how much the shard's clock is ahead of this process'
	Unsettled  time.Duration // how long ago, by the shard's clock, the moment was up to which all is settled
	Applies    uint64        // batches that Redis took
	Refused    uint64        // batches that began elsewhere than Redis had reached
	Dropped    uint64        // offered records that were dropped, to be read from the topic

	answered event.Micros // by mono
}

// losses counts lost permits, by the limit's name.
type losses struct {
	mu     sync.Mutex
	counts map[string]uint64
}

func (l *losses) add(lost []protocol.Lost) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts == nil {
		l.counts = map[string]uint64{}
	}
	for i := range lost {
		for j := range lost[i].Parts {
			if part := &lost[i].Parts[j]; part.Kind != protocol.InFlight && !part.Returns {
				l.counts[part.Name]++
			}
		}
	}
}

func (l *losses) all() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counts)
}

// ErrorKinds are all kinds of Stats.Errors.
var ErrorKinds = []failure.Kind{failure.Auth, failure.Memory, failure.TLS, failure.Replica, failure.Old, failure.Other, failure.Away}

// kindOf returns the kind of an error of the scripts.
func kindOf(err error) failure.Kind {
	switch {
	case errors.Is(err, script.ErrTooOld):
		return failure.Old
	case redis.IsReadOnlyError(err):
		return failure.Replica
	}
	return failure.Of(err)
}

// Stats returns what the Publisher is doing now.
func (p *Publisher) Stats() Stats {
	var s Stats
	for _, w := range p.owned.All() {
		s.Partitions = append(s.Partitions, w.stats())
	}
	s.Errors, s.Lost, s.Refills = p.redis.Errors(), p.losses.all(), p.refills.Total()
	s.Applies = p.applies.Load()
	for kind, n := range p.reports.Errors() {
		if s.Errors == nil {
			s.Errors = map[failure.Kind]uint64{}
		}
		s.Errors[kind] += n
	}
	for _, o := range []*failure.Outages{&p.redis, &p.reports, &p.kafka, &p.owners} {
		failing, at, err := o.State()
		s.Failing = s.Failing || failing
		if err != nil && at.After(s.LastErrAt) {
			s.LastError, s.LastErrAt = err, at
		}
	}
	return s
}

func (w *worker) note(change func(*PartitionStats)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.current)
}

// noteAnswer notes what a shard said to a batch.
func (w *worker) noteAnswer(b *protocol.Batch, a *protocol.Applied, now event.Micros) {
	ahead := a.Clock - b.Beat
	grants := w.marks.mayGrant(a) && ahead <= protocol.MaxAhead
	settled := w.warden.Settled(w.marks.progress)
	w.note(func(s *PartitionStats) {
		s.Strict, s.Reached, s.Lag, s.answered = true, a.Reached, max(max(w.least, w.offered.Next())-a.Reached, 0), now
		switch {
		case a.OK:
			s.Applies++
			w.p.applies.Add(1)
		case b.Start != unknown:
			s.Refused++
		}
		s.Ahead = ahead.Duration()
		s.doubt(grants, w.why(now, ahead), w.p.clock())
		since := w.marks.began
		if settled.Epoch == a.Life {
			since = max(since, settled.At)
		}
		s.Unsettled = (a.Clock - since).Duration()
		for i := range b.Records {
			if v := b.Records[i].Version; a.OK && v > 0 {
				w.version = v // not the greatest: a topic of rules that was created anew counts from the start
			}
		}
	})
}

// why explains why the partition's shard may not grant permits.
func (w *worker) why(now, ahead event.Micros) string {
	waits, closed := w.warden.Waits(now)
	rest, but := waits.Rest, ""
	if waits.Open > 0 {
		but = fmt.Sprintf(" (limits with a hold of at most %v are open)", waits.Open.Duration())
	}
	switch {
	case ahead > protocol.MaxAhead:
		return fmt.Sprintf("Redis' clock is %v ahead of this machine's: set the one that is wrong", ahead.Duration().Round(time.Second))
	case w.behind || w.reached < w.least:
		return "Redis is being filled from the verdict topic"
	case rest > 0:
		return fmt.Sprintf("Redis lost its memory, or is another process: permits that may be out have to end first, within %v%s", rest.Duration().Round(time.Second), but)
	case closed:
		return "Redis lost its memory, or is another process: what was counted until now has to reach it first" + but
	}
	return "the aggregator has not written yet that this Redis may grant permits"
}

// doubt notes whether the shard may grant permits.
func (s *PartitionStats) doubt(grants bool, why string, now event.Micros) {
	s.Why = why
	switch {
	case grants:
		s.DoubtSince, s.Why = 0, ""
	case s.Grants || s.DoubtSince == 0:
		s.DoubtSince = now
	}
	s.Grants = grants
}

func (w *worker) stats() PartitionStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current.Grants && w.p.mono()-w.current.answered > protocol.Lease {
		w.current.doubt(false, "Redis has not answered for "+protocol.Lease.Duration().String(), w.p.clock()) // nobody renews what it may
	}
	s := w.current
	s.Dropped = w.offered.Dropped()
	return s
}
