package kafkalog

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/internal/base/retry"
)

const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second

	// lasting is the number of failures in a row of which the log tells: they take some two seconds. A leader that
	// moves costs fewer.
	lasting = 6
)

// due returns the readers whose leader is to be found now, or how long there is nothing to do.
func (f *Fetcher) due(now time.Time) (due []*Reader, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	wait = time.Hour
	for _, r := range f.readers {
		if r.leader != noLeader || r.err != nil {
			continue
		}
		if until := r.retryAt.Sub(now); until > 0 {
			wait = min(wait, until)
			continue
		}
		due = append(due, r)
	}
	return due, wait
}

// lose lets the reader's leader be found again, after a while. The fetcher is locked.
func (f *Fetcher) lose(r *Reader, why error) {
	r.leader = noLeader
	r.failures++
	r.trouble = why
	f.tell(r, why)
	r.retryAt = time.Now().Add(retry.Spread(retry.After(r.failures, minBackoff, maxBackoff)))
	if !r.logged && r.failures >= lasting {
		r.logged = true
		f.cfg.Logger.Warn("reading a partition failed; retrying", "topic", r.topic, "partition", r.partition, "error", why)
	}
	f.look()
}

// tell passes on what went wrong. The fetcher is locked.
func (f *Fetcher) tell(r *Reader, why error) {
	if f.cfg.OnError != nil {
		f.cfg.OnError(r.topic, r.partition, why)
	}
}

// answered notes that a broker has given what was asked for, if only the partition's end. The
// fetcher is locked.
func (f *Fetcher) answered(r *Reader, end int64) {
	r.end, r.heard, r.trouble = end, time.Now(), nil
	if r.logged {
		f.cfg.Logger.Info("reading a partition works again", "topic", r.topic, "partition", r.partition)
	}
	r.failures, r.logged = 0, false
}

// findLeaders asks who leads the readers' partitions, and returns the brokers that are new.
func (f *Fetcher) findLeaders(ctx context.Context, client *kgo.Client, due []*Reader) (started []*node) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	asked := map[string]bool{}
	for _, r := range due {
		if !asked[r.topic] {
			asked[r.topic] = true
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = kmsg.StringPtr(r.topic)
			req.Topics = append(req.Topics, t)
		}
	}
	resp, err := req.RequestWith(ctx, client)
	topics := map[string]*kmsg.MetadataResponseTopic{}
	if err == nil {
		for i := range resp.Topics {
			if t := &resp.Topics[i]; t.Topic != nil {
				topics[*t.Topic] = t
			}
		}
	}
	return f.assign(due, f.followAll(ctx, client, due, topics, err))
}

// followAll notes the readers' leaders, and asks those that are new whether the log was cut. It
// returns why a reader has none.
func (f *Fetcher) followAll(ctx context.Context, client *kgo.Client, due []*Reader, topics map[string]*kmsg.MetadataResponseTopic, err error) map[*Reader]error {
	failed := map[*Reader]error{}
	var doubts []doubt
	f.mu.Lock()
	for _, r := range due {
		why := err
		if why == nil && r.err == nil {
			why = r.follow(topics[r.topic])
		}
		if why != nil {
			failed[r] = fmt.Errorf("find the leader: %w", why)
		} else if r.err == nil && r.last != noEpoch && r.asked != r.epoch {
			doubts = append(doubts, doubt{r, r.last, r.epoch, r.next})
		}
	}
	f.mu.Unlock()
	for _, d := range doubts {
		if err := f.settle(ctx, client, d); err != nil {
			failed[d.reader] = err
		}
	}
	return failed
}

// assign gives the readers to their leaders' nodes, and returns those nodes that are new.
func (f *Fetcher) assign(due []*Reader, failed map[*Reader]error) (started []*node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range due {
		if r.err != nil {
			continue
		}
		if why := failed[r]; why != nil {
			f.lose(r, why)
			continue
		}
		if r.leader == noLeader {
			continue // it has failed
		}
		r.lane = 0
		if f.nodes[r.spot()] == nil {
			started = append(started, newNode(f, r.spot()))
		}
		f.lanes.choose(r, f.readers)
		f.nodes[r.spot()].signal()
	}
	return started
}

// follow notes the partition's leader. The fetcher is locked.
func (r *Reader) follow(t *kmsg.MetadataResponseTopic) error {
	if t == nil {
		return kerr.UnknownTopicOrPartition
	}
	if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
		return err
	}
	switch is := t.TopicID; {
	case r.id == is, is == [16]byte{}:
	case r.id == [16]byte{}:
		r.id = is
	default:
		r.fail(fmt.Errorf("%w: %s", ErrTopicChanged, r.topic))
		return nil
	}
	for i := range t.Partitions {
		p := &t.Partitions[i]
		if p.Partition != r.partition {
			continue
		}
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return err
		}
		if p.Leader < 0 {
			return kerr.LeaderNotAvailable
		}
		r.leader, r.epoch = p.Leader, p.LeaderEpoch
		return nil
	}
	return kerr.UnknownTopicOrPartition
}
