package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/internal/run/kafkaconn/clients"
	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

const fencingFix = "exactly-once counting needs brokers that refuse an owner that was replaced: use Apache Kafka 2.8 or later, " +
	"or a compatible broker; otherwise a paused aggregator can overwrite what its successor counted"

// trial is a test of fencing on a scratch topic, with a partition on as many brokers as possible.
type trial struct {
	e      *examination
	topic  string
	config fenced.Config
	sent   []time.Time // per partition: about when its first record was appended, by our clock
	margin []time.Duration
}

// checkFencing simulates a takeover. Of two owners of one transactional id, the older must be
// refused once the newer has appended its fence record; and a repeated batch must not be appended
// twice.
func (e *examination) checkFencing(ctx context.Context) outcome {
	if e.cfg.NoWrite {
		return found(skip("fencing", "--no-write: the test needs a scratch topic"))
	}
	link := fenced.NewLink(e.client)
	defer link.Close()
	t := &trial{e: e, topic: e.cfg.Prefix + ".doctor-" + e.random, config: fenced.Config{
		TransactionalID: e.cfg.Prefix + "-doctor-" + e.random, Urgent: link,
		RequestTimeout: e.cfg.Timeout / 2, Log: slog.New(slog.DiscardHandler),
	}}
	err := t.create()
	if refused(err) {
		return found(warn("fencing", e.aclCommand(scratchGrant(e.names)), "not tested: no right to create the scratch topic %s: %v", t.topic, err))
	}
	if err != nil {
		return found(fail("fencing", "", "create the scratch topic %s: %v", t.topic, err))
	}
	results, clocks := t.run(ctx)
	if err := e.admin.DeleteTopic(t.topic); err != nil {
		results = append(results, warn("fencing", e.kafkaCommand("kafka-topics.sh", "--delete --topic %s", t.topic), "the scratch topic %s was not deleted: %v", t.topic, err))
	}
	return outcome{results: results, keep: func() { e.clocks = append(e.clocks, clocks...) }}
}

func (t *trial) create() error {
	settings := map[string]string{"message.timestamp.type": "LogAppendTime", "retention.ms": strconv.FormatInt(time.Hour.Milliseconds(), 10)}
	detail := &sarama.TopicDetail{
		NumPartitions:     int32(min(12, len(t.e.brokers))),
		ReplicationFactor: int16(min(3, len(t.e.brokers))),
		ConfigEntries:     map[string]*string{},
	}
	for k, v := range settings {
		detail.ConfigEntries[k] = &v
	}
	t.sent, t.margin = make([]time.Time, detail.NumPartitions), make([]time.Duration, detail.NumPartitions)
	return t.e.admin.CreateTopic(t.topic, detail, false)
}

// run also returns the clocks of the brokers.
func (t *trial) run(ctx context.Context) ([]Result, []health.Offset) {
	accepted, err := t.takeOver(ctx)
	switch {
	case refused(err):
		return []Result{warn("fencing", t.e.aclCommand(t.refusedGrant(err)), "not tested: %v", err)}, nil
	case errors.Is(err, errNoFence):
		return []Result{fail("fencing", fencingFix, "%v", err)}, nil
	case err != nil:
		return []Result{fail("fencing", "", "not proven: %v", err)}, nil
	}
	if err := t.repeat(ctx, accepted); err != nil {
		return []Result{fail("fencing", fencingFix, "a repeated batch: %v", err)}, nil
	}
	clocks, err := t.readBack(ctx)
	switch {
	case refused(err):
		return []Result{warn("fencing", t.e.aclCommand(scratchGrant(t.e.names)), "brokers refuse an owner that was replaced; whether its records stayed out of the log was not tested: %v", err)}, nil
	case err != nil:
		return []Result{fail("fencing", fencingFix, "%v", err)}, nil
	}
	return []Result{ok("fencing", "an owner that was replaced is refused, and a repeated batch is appended once")}, clocks
}

// refusedGrant is the right that the principal lacks.
func (t *trial) refusedGrant(err error) grant {
	if errors.Is(err, sarama.ErrTransactionalIDAuthorizationFailed) {
		return transactionalGrant(t.e.names)
	}
	return scratchGrant(t.e.names)
}

var errNoFence = errors.New("these brokers do not fence")

// takeOver tests a takeover, and returns the new owner.
func (t *trial) takeOver(ctx context.Context) (*fenced.Identity, error) {
	older, err := fenced.Acquire(ctx, t.config)
	if err != nil {
		return nil, err
	}
	replaced := make([]*fenced.Writer, len(t.sent))
	for p := range replaced {
		replaced[p] = older.NewWriter(t.topic, int32(p))
		if _, err := replaced[p].Fence(ctx); err != nil { // waits for the leader, too
			return nil, err
		}
		before := time.Now()
		if _, err := replaced[p].Fence(ctx); err != nil {
			return nil, err
		}
		t.margin[p] = time.Since(before) / 2
		t.sent[p] = before.Add(t.margin[p])
	}
	newer, err := fenced.Acquire(ctx, t.config)
	if err != nil {
		return nil, err
	}
	if newer.ProducerID() == older.ProducerID() && newer.Epoch() <= older.Epoch() {
		return nil, fmt.Errorf("%w: the next owner got epoch %d after %d", errNoFence, newer.Epoch(), older.Epoch())
	}
	for p, w := range replaced {
		if _, err := newer.NewWriter(t.topic, int32(p)).Fence(ctx); err != nil {
			return nil, err
		}
		switch offset, err := w.Fence(ctx); {
		case err == nil:
			return nil, fmt.Errorf("%w: a record of an owner that was replaced was accepted, at offset %d", errNoFence, offset)
		case !errors.Is(err, fenced.ErrFenced):
			return nil, err
		}
	}
	return newer, nil
}

// repeat appends a batch twice with one sequence number, by FenceOld: its epoch is the greatest
// possible, and its sequence is always 0.
func (t *trial) repeat(ctx context.Context, owner *fenced.Identity) error {
	for p := range t.sent {
		first, err := fenced.FenceOld(ctx, t.config, t.topic, int32(p), owner.ProducerID())
		if err != nil {
			return err
		}
		again, err := fenced.FenceOld(ctx, t.config, t.topic, int32(p), owner.ProducerID())
		if err != nil {
			return err
		}
		if first != again {
			return fmt.Errorf("a batch that was sent twice is in the log twice, at offsets %d and %d", first, again)
		}
	}
	return nil
}

// readBack checks the log for records that must not be there, and reads the brokers' clocks from
// it.
func (t *trial) readBack(ctx context.Context) ([]health.Offset, error) {
	logs, stop, err := kafkalog.Open(clients.Log(t.e.cfg.Kafka, "tallygate-doctor"))
	if err != nil {
		return nil, err
	}
	defer stop()
	var clocks []health.Offset
	for p := range t.sent {
		times, err := t.times(ctx, logs, int32(p))
		if err != nil {
			return nil, fmt.Errorf("read the scratch topic: %w", err)
		}
		const records = 4 // two of the older owner, one of the newer, and the repeated one once
		if len(times) != records {
			return nil, fmt.Errorf("the log has %d records, want %d", len(times), records)
		}
		leader, err := t.e.client.Leader(t.topic, int32(p))
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("broker %d", leader.ID())
		if !slices.ContainsFunc(clocks, func(c health.Offset) bool { return c.Name == name }) {
			clocks = append(clocks, health.Offset{Name: name, Ahead: times[1].Sub(t.sent[p]), Margin: t.margin[p] + time.Millisecond})
		}
	}
	return clocks, nil
}

// times returns the times of a partition's records.
func (t *trial) times(ctx context.Context, logs *kafkalog.Fetcher, partition int32) (times []time.Time, err error) {
	end, err := t.e.client.GetOffset(t.topic, partition, sarama.OffsetNewest)
	if err != nil {
		return nil, err
	}
	err = logs.Scan(ctx, t.topic, [16]byte{}, partition, 0, end, func(rec *kafkalog.Record) error {
		times = append(times, rec.Time())
		return nil
	})
	return times, err
}
