package kafkalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Offsets alone do not tell a log from one that was cut and has grown again. Every batch has the
// epoch of the leader that took it, and leaders know where each epoch ends in their log: what was
// read of an epoch beyond its end is no longer there (KIP-320).

// EpochEnd is the end of an epoch in a partition's log.
type EpochEnd struct {
	Epoch int32 // the one that was asked for or, where the log has nothing of that, the one before it; -1: none
	End   int64 // the first offset behind it; -1 when the leader does not know
}

// Lost reports whether the log has lost records below next, the last of which had this epoch.
func (e EpochEnd) Lost(epoch int32, next int64) bool {
	return e.End >= 0 && (e.Epoch < epoch && e.Epoch >= 0 || e.End < next)
}

// EndOfEpoch asks the partition's leader where an epoch ends. It waits until Start was called.
func (f *Fetcher) EndOfEpoch(ctx context.Context, topic string, partition, epoch int32) (EpochEnd, error) {
	client, err := f.connected(ctx)
	if err != nil {
		return EpochEnd{}, err
	}
	return endOfEpoch(ctx, client, topic, partition, epoch, noEpoch)
}

// endOfEpoch asks whoever leads under the epoch current, if that is known.
func endOfEpoch(ctx context.Context, client *kgo.Client, topic string, partition, epoch, current int32) (EpochEnd, error) {
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.LeaderEpoch, p.CurrentLeaderEpoch = partition, epoch, current
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{p}}}
	resp, err := req.RequestWith(ctx, client)
	if err == nil && (len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1) {
		err = errors.New("the broker's answer lacks the partition")
	}
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return EpochEnd{}, fmt.Errorf("ask where leader epoch %d of %s/%d ends: %w", epoch, topic, partition, err)
	}
	is := resp.Topics[0].Partitions[0]
	return EpochEnd{is.LeaderEpoch, is.EndOffset}, nil
}

// doubt is a reader whose leader is new: it may lack what was read from the one before.
type doubt struct {
	reader  *Reader
	epoch   int32 // of what was read last
	current int32 // the new leader's
	next    int64
}

// settle asks the new leader, and fails the reader when the log was cut.
func (f *Fetcher) settle(ctx context.Context, client *kgo.Client, d doubt) error {
	r := d.reader
	is, err := endOfEpoch(ctx, client, r.topic, r.partition, d.epoch, d.current)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err != nil:
		return err
	case is.Lost(d.epoch, d.next):
		r.fail(fmt.Errorf("%w: %s/%d ends at %d in leader epoch %d, and was read up to %d in epoch %d",
			ErrCut, r.topic, r.partition, is.End, is.Epoch, d.next, d.epoch))
	default:
		r.asked = d.current
	}
	return nil
}
