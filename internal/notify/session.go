package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/internal/notify/group"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/kafkaconn/clients"
)

// follower reads the audit for one worker, as a member of the receiver's own consumer group: so each receiver
// has a progress of its own, and one that is down holds no other one up.
type follower struct {
	kafka    *kafkaconn.Kafka
	topic    string
	group    string
	readOnly bool // nothing is committed
	w        *worker
	log      *slog.Logger

	client sarama.Client
	admin  sarama.ClusterAdmin
	second sarama.Client // for commits: on a connection of the first they would wait behind its fetches
}

// Pauses between attempts to join.
const (
	joinAgain   = 500 * time.Millisecond
	joinAtLeast = 30 * time.Second
)

func (f *follower) config() *sarama.Config {
	s := sarama.NewConfig()
	s.Version = sarama.V2_8_0_0
	s.ClientID = "tallygate-notify"
	s.Net.DialTimeout, s.Net.ReadTimeout, s.Net.WriteTimeout = 5*time.Second, 15*time.Second, 15*time.Second
	s.Metadata.Retry.Max, s.Admin.Retry.Max = 2, 2
	s.Metadata.AllowAutoTopicCreation = false
	s.ChannelBufferSize = 16
	s.Consumer.Offsets.AutoCommit.Enable = false
	s.Consumer.Offsets.Initial = sarama.OffsetNewest
	s.Consumer.Return.Errors = false
	s.Consumer.Fetch.Default = 256 << 10
	clients.Sarama(f.kafka)(s)
	return s
}

// run reads until ctx ends. It joins again after each failure.
func (f *follower) run(ctx context.Context) error {
	again := retry.Backoff{Min: joinAgain, Max: joinAtLeast, Spread: true}
	for ctx.Err() == nil {
		began := time.Now()
		err := f.join(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > joinAtLeast {
			again.Reset()
		}
		wait := again.Next()
		if err != nil {
			f.log.Warn("the audit cannot be read; trying again", "topic", f.topic, "error", err, "retry_seconds", wait.Seconds())
		}
		retry.Sleep(ctx, wait)
	}
	return nil
}

// join connects, and serves sessions until one fails.
func (f *follower) join(ctx context.Context) (err error) {
	client, err := f.connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closed(client)) }()
	if f.second, err = f.connect(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closed(f.second)) }()
	if f.admin, err = sarama.NewClusterAdminFromClient(client); err != nil {
		return fmt.Errorf("connect to Kafka: %w", err)
	}
	f.client = client
	members, err := sarama.NewConsumerGroupFromClient(f.group, client)
	if err != nil {
		return fmt.Errorf("join the group %s: %w", f.group, err)
	}
	defer func() { err = errors.Join(err, members.Close()) }()
	for ctx.Err() == nil {
		if err := members.Consume(ctx, []string{f.topic}, f); err != nil {
			return fmt.Errorf("follow %s in the group %s: %w", f.topic, f.group, err)
		}
	}
	return nil
}

func (f *follower) connect() (sarama.Client, error) {
	client, err := sarama.NewClient(f.kafka.Brokers, f.config())
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka: %w", err)
	}
	return client, nil
}

// closed closes a client, if nobody has.
func closed(c sarama.Client) error {
	if err := c.Close(); !errors.Is(err, sarama.ErrClosedClient) {
		return err
	}
	return nil
}

// Setup begins a session: the worker begins where the group is.
func (f *follower) Setup(s sarama.ConsumerGroupSession) error {
	places, err := f.places(s)
	if err != nil {
		return err
	}
	for partition, at := range places { // where sarama begins to read
		s.MarkOffset(f.topic, partition, at.Offset, at.Metadata)
		s.ResetOffset(f.topic, partition, at.Offset, at.Metadata)
	}
	f.w.begin(s.Context(), places, func(to map[int32]group.Place) error { return f.commit(s, to) })
	return nil
}

// places finds the offsets at which the session's partitions are read on. A group that has never been there begins at
// the end of the topic, and says so at once, so that nothing that comes now is lost.
func (f *follower) places(s sarama.ConsumerGroupSession) (map[int32]group.Place, error) {
	all, err := f.client.Partitions(f.topic)
	if err != nil {
		return nil, fmt.Errorf("list the partitions of %s: %w", f.topic, err)
	}
	committed, err := f.admin.ListConsumerGroupOffsets(f.group, map[string][]int32{f.topic: all})
	if err != nil {
		return nil, fmt.Errorf("read the offsets of the group %s: %w", f.group, err)
	}
	known := slices.ContainsFunc(all, func(p int32) bool {
		b := committed.GetBlock(f.topic, p)
		return b != nil && b.Offset >= 0
	})
	places := map[int32]group.Place{}
	for _, p := range s.Claims()[f.topic] {
		oldest, err := f.client.GetOffset(f.topic, p, sarama.OffsetOldest)
		newest, newErr := f.client.GetOffset(f.topic, p, sarama.OffsetNewest)
		if err := errors.Join(err, newErr); err != nil {
			return nil, fmt.Errorf("read the offsets of %s: %w", f.topic, err)
		}
		b := committed.GetBlock(f.topic, p)
		switch {
		case b != nil && !errors.Is(b.Err, sarama.ErrNoError):
			return nil, fmt.Errorf("read the offsets of the group %s: %w", f.group, b.Err)
		case b == nil || b.Offset < 0:
			places[p] = group.Place{Offset: newest}
			if known { // the partition is new
				places[p] = group.Place{Offset: oldest}
			}
		case b.Offset < oldest:
			f.w.lose(p, oldest-b.Offset)
			places[p] = group.Place{Offset: oldest}
		case b.Offset > newest: // another topic of the same name
			places[p] = group.Place{Offset: oldest}
		default:
			places[p] = group.Place{Offset: b.Offset, Metadata: b.Metadata}
		}
	}
	return places, f.commit(s, places)
}

// commit writes where the group is, and returns when Kafka has it.
func (f *follower) commit(s sarama.ConsumerGroupSession, places map[int32]group.Place) error {
	if f.readOnly || len(places) == 0 {
		return nil
	}
	const version = 6 // it has no time of its own after which offsets are forgotten, and no static members
	req := &sarama.OffsetCommitRequest{Version: version, ConsumerGroup: f.group, ConsumerGroupGeneration: s.GenerationID(), ConsumerID: s.MemberID()}
	for partition, at := range places {
		const noEpoch = -1
		req.AddBlockWithLeaderEpoch(f.topic, partition, at.Offset, noEpoch, sarama.ReceiveTime, at.Metadata)
	}
	broker, err := f.second.Coordinator(f.group)
	if err != nil {
		return fmt.Errorf("commit offsets of the group %s: %w", f.group, err)
	}
	resp, err := broker.CommitOffset(req)
	if err != nil {
		_ = broker.Close()
	} else {
		for _, kerr := range resp.Errors[f.topic] {
			if !errors.Is(kerr, sarama.ErrNoError) {
				err = kerr
			}
		}
	}
	if err != nil {
		_ = f.second.RefreshCoordinator(f.group)
		return fmt.Errorf("commit offsets of the group %s: %w", f.group, err)
	}
	return nil
}

// ConsumeClaim hands entries to the worker. It stops while the worker has enough.
func (f *follower) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-c.Messages():
			if !ok || !f.w.read(s.Context(), m, c.HighWaterMarkOffset()) {
				return nil
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

// Cleanup ends a session.
func (f *follower) Cleanup(sarama.ConsumerGroupSession) error {
	f.w.end()
	return nil
}
