package owner

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// AnswerWithin is how long an owned partition may go without an answer to its fetches until the
// instance is not ready. Brokers answer ten times a second, also when there is nothing.
const AnswerWithin = 5 * time.Second

// progress reads the sources, and tells how far they are counted. Its exported methods are a Partition's,
// and may be called by any goroutine.
type progress struct {
	*core
	readers [shard.Sources]atomic.Pointer[kafkalog.Reader]
}

// Read begins to read a source, from where it goes on. The caller closes the reader.
func (p *progress) Read(src shard.Source) *kafkalog.Reader {
	topic := p.topicOf(src)
	p.lock()
	next, epoch := p.shard.Behind(src)
	p.mu.Unlock()
	r := p.env.Claims.ReadBehind(topic, p.session.Topics[topic].ID, p.id, next, epoch)
	p.readers[src].Store(r)
	return r
}

// Backlog is what waits to be counted from a source of an owned partition.
type Backlog struct {
	Records int64
	Behind  time.Duration // how old what was counted last is; 0 where nothing waits
}

// Backlog tells what waits of a source, as far as Kafka's last answer says.
func (p *progress) Backlog(src shard.Source, at time.Time) Backlog {
	r := p.readers[src].Load()
	next, last := p.counted(src)
	if r == nil {
		return Backlog{}
	}
	b := Backlog{Records: max(0, r.Progress().End-next)}
	if b.Records > 0 {
		since := p.openedAt // nothing was counted yet
		if last != event.NoTime {
			since = last.Time()
		}
		b.Behind = max(0, at.Sub(since))
	}
	return b
}

func (p *progress) counted(src shard.Source) (next int64, last event.Micros) {
	p.lock()
	defer p.mu.Unlock()
	return p.shard.Next(src), p.shard.Last(src)
}

// Lateness says for people how late the partition counts.
func (p *progress) Lateness(at time.Time) string {
	var late []string
	for src, what := range []string{shard.Input: "its events", shard.Loop: "what others forward to it"} {
		if b := p.Backlog(shard.Source(src), at); b.Records > 0 {
			late = append(late, fmt.Sprintf("%.1f s behind with %s (%d records wait)", b.Behind.Seconds(), what, b.Records))
		}
	}
	if len(late) == 0 {
		return fmt.Sprintf("partition %d is in step", p.id)
	}
	return fmt.Sprintf("partition %d is %s", p.id, strings.Join(late, ", and "))
}

// Standing is how far the event partition is counted here.
type Standing struct {
	End   int64     // of the partition, as Kafka last told; -1: never
	EndAt time.Time // when
	Next  int64     // the first offset that is not counted
	Last  event.Micros
}

// Standing tells how far the event partition is, and the broker time of what was counted last.
func (p *progress) Standing() Standing {
	// The answer first: what it says is the end was there before what is counted is looked at.
	s := Standing{End: -1}
	if r := p.readers[shard.Input].Load(); r != nil {
		is := r.Progress()
		s.End, s.EndAt = is.End, is.At
	}
	s.Next, s.Last = p.counted(shard.Input)
	return s
}

// Heard is when the partition's fetches were last answered, both of them.
func (p *progress) Heard() time.Time {
	at := time.Now()
	for src := range p.readers {
		if r := p.readers[src].Load(); r == nil {
			at = p.openedAt
		} else if is := r.Progress(); is.At.Before(at) {
			at = is.At
		}
	}
	return at
}

// Unanswered returns an error when a fetch of the partition has had no answer for too long.
func (p *progress) Unanswered(now time.Time) error {
	for src := range p.readers {
		topic, since, why := p.topicOf(shard.Source(src)), p.openedAt, errors.New("it is not asked for yet")
		if r := p.readers[src].Load(); r != nil {
			is := r.Progress()
			since, why = is.At, is.Err
		}
		if quiet := now.Sub(since); quiet > AnswerWithin {
			err := fmt.Errorf("nothing was read from %s/%d for %v", topic, p.id, quiet.Round(time.Second))
			if why != nil {
				err = fmt.Errorf("%w: %w", err, why)
			}
			return err
		}
	}
	return nil
}
