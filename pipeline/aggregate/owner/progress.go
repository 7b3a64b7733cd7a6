package owner

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// AnswerWithin is the time for which the fetches of an owned partition may stay unanswered before the instance is not
// ready. Brokers answer ten times a second, even without records.
const AnswerWithin = 5 * time.Second

// progress reads the sources, and knows how far they are counted. Its exported methods are a
// Partition's, and may be called by any goroutine.
type progress struct {
	*core
	readers [shard.Sources]atomic.Pointer[kafkalog.Reader]
}

// Read starts to read a source, from where counting continues. The caller closes the reader.
func (p *progress) Read(src shard.Source) *kafkalog.Reader {
	topic := p.topicOf(src)
	p.lock()
	next, epoch := p.shard.Log().Behind(src)
	p.mu.Unlock()
	r := p.env.Claims.ReadBehind(topic, p.session.Topics[topic].ID, p.id, next, epoch)
	p.readers[src].Store(r)
	return r
}

// Backlog counts the records to be counted from a source of an owned partition.
type Backlog struct {
	Records int64
	Behind  time.Duration // age of the record counted last; 0 if none waits
}

// Backlog returns what waits to be counted from a source, according to Kafka's last answer.
func (p *progress) Backlog(src shard.Source, at time.Time) Backlog {
	r := p.readers[src].Load()
	next, last := p.counted(src)
	if r == nil {
		return Backlog{}
	}
	b := Backlog{Records: max(0, r.Progress().End-next)}
	if b.Records > 0 {
		since := p.openedAt // nothing is counted yet
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
	return p.shard.Log().Next(src), p.shard.Log().Last(src)
}

// Lateness describes for operators how late the partition counts.
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

// Standing is the progress of the event partition here.
type Standing struct {
	End   int64     // of the partition, as Kafka last answered; -1: never
	EndAt time.Time // when it answered
	Next  int64     // the first offset not counted
	Last  event.Micros
}

// Standing returns how far the event partition is counted, and the broker time of the record
// counted last.
func (p *progress) Standing() Standing {
	// Kafka's answer first: its end then is not newer than the count that it is compared with.
	s := Standing{End: -1}
	if r := p.readers[shard.Input].Load(); r != nil {
		is := r.Progress()
		s.End, s.EndAt = is.End, is.At
	}
	s.Next, s.Last = p.counted(shard.Input)
	return s
}

// Heard returns the time at which both of the partition's fetches had last been answered.
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

// Unanswered returns an error if a fetch of the partition has had no answer for too long.
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
