package aggregate

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// rulesLog keeps the versions of the rules. It is a topic; tests have one in memory.
type rulesLog interface {
	oldest() (offset int64, err error)
	newest() (offset int64, err error) // behind the last record

	// bounds returns both, for callers who wait: it ends with ctx.
	bounds(ctx context.Context) (oldest, newest int64, err error)
	scan(ctx context.Context, from, to int64, each func(*kafkalog.Record) error) error

	// append adds a version. After an error it may be there all the same.
	append(value []byte) (offset int64, err error)
}

// rulesTopic is the rulesLog of a group.
type rulesTopic struct{ *rulebook }

func (t rulesTopic) oldest() (int64, error) {
	return t.agg.clients.bulk.GetOffset(t.topic, 0, sarama.OffsetOldest)
}

func (t rulesTopic) newest() (int64, error) {
	return t.agg.clients.bulk.GetOffset(t.topic, 0, sarama.OffsetNewest)
}

func (t rulesTopic) bounds(ctx context.Context) (oldest, end int64, err error) {
	starts, err := t.agg.logs.Starts(ctx, t.topic, 1)
	if err != nil {
		return 0, 0, fmt.Errorf("find the start of %s: %w", t.topic, err)
	}
	ends, err := t.agg.logs.Ends(ctx, t.topic, 1)
	if err != nil {
		return 0, 0, fmt.Errorf("find the end of %s: %w", t.topic, err)
	}
	return starts[0], ends[0], nil
}

func (t rulesTopic) scan(ctx context.Context, from, to int64, each func(*kafkalog.Record) error) error {
	return t.agg.logs.Scan(ctx, t.topic, t.id(), 0, from, to, each)
}

func (t rulesTopic) append(value []byte) (offset int64, err error) {
	p, err := t.producer(len(value))
	if err != nil {
		return 0, err
	}
	defer p.Close()
	_, offset, err = p.SendMessage(&sarama.ProducerMessage{Topic: t.topic, Key: sarama.StringEncoder(ruleRecordKey), Value: sarama.ByteEncoder(value)})
	return offset, err
}

// Rules with long lists in their files make a record that auxiliary output may not have.
const (
	maxRuleRecord  = 8 << 20 // before compression
	ruleRecordRoom = 1 << 10 // what else is in its batch
)

// producer returns what publishes a record of so many bytes. A large one is compressed, so that the topic
// takes it: most of it is text in base64. That needs connections of its own, which nothing else pays for.
func (t rulesTopic) producer(size int) (sarama.SyncProducer, error) {
	bulk := t.agg.clients.bulk
	if size+ruleRecordRoom <= bulk.Config().Producer.MaxMessageBytes {
		return sarama.NewSyncProducerFromClient(bulk)
	}
	cfg := t.agg.cfg.sarama()
	cfg.Producer.MaxMessageBytes, cfg.Producer.Compression = maxRuleRecord, sarama.CompressionZSTD
	return sarama.NewSyncProducer(t.agg.cfg.Brokers, cfg)
}
