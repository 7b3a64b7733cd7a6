package aggregate

import (
	"context"
	"fmt"
	"hash"
	"log/slog"

	"github.com/IBM/sarama"
	"github.com/lovoo/goka"
	"github.com/lovoo/goka/storage"

	"github.com/tallygate/tallygate/event"
)

// runProcessor runs one goka processor until it ends. A processor runs only once.
func (a *instance) runProcessor(ctx context.Context) error {
	codec := bundleCodec{&a.bundles}
	graph := goka.DefineGroup(goka.Group(a.names.Group),
		goka.Input(goka.Stream(a.names.Events), codec, process),
		goka.Loop(codec, process),
		goka.Persist(rawCodec{}),
	)
	p, err := goka.NewProcessor(a.cfg.Brokers, graph, append(a.gokaClients(),
		goka.WithLogger(gokaLogger{a.log}),
		goka.WithHasher(newMurmur2),
		goka.WithNilHandling(goka.NilProcess),
		goka.WithPartitionChannelSize(2),
		goka.WithStorageBuilder(a.newOwnership),
		goka.WithUpdateCallback(func(goka.UpdateContext, storage.Storage, string, []byte) error { return nil }),
	)...)
	if err != nil {
		return fmt.Errorf("build the processor: %w", err)
	}
	return p.Run(ctx)
}

// gokaClients configures how goka connects. Each client has its own settings: goka's builders write
// into those that they are given, while clients built earlier still connect in the background.
func (a *instance) gokaClients() []goka.ProcessorOption {
	tables := func(brokers []string) (goka.TopicManager, error) {
		return goka.TopicManagerBuilderWithConfig(a.cfg.sarama(), goka.NewTopicManagerConfig())(brokers)
	}
	return []goka.ProcessorOption{
		goka.WithClientID(a.cfg.sarama().ClientID),
		goka.WithConsumerSaramaBuilder(goka.SaramaConsumerBuilderWithConfig(a.cfg.sarama())),
		goka.WithProducerBuilder(goka.ProducerBuilderWithConfig(a.cfg.sarama())),
		goka.WithTopicManagerBuilder(settledTables(tables)), // it is called twice
		goka.WithConsumerGroupBuilder(func(brokers []string, id, _ string) (sarama.ConsumerGroup, error) {
			return a.newGroup(brokers, id, a.cfg.sarama())
		}),
	}
}

// process is goka's callback. One goroutine per partition calls it.
func process(_ goka.Context, msg any) {
	b := msg.(*bundle)
	defer b.release()
	b.of.Process(&b.Bundle)
}

// rawCodec is for the table, which goka neither reads nor writes.
type rawCodec struct{}

func (rawCodec) Encode(v any) ([]byte, error)    { return v.([]byte), nil }
func (rawCodec) Decode(data []byte) (any, error) { return data, nil }

// murmur2 makes goka hash keys as Kafka's Java client does.
type murmur2 struct{ key []byte }

func newMurmur2() hash.Hash32 { return &murmur2{} }

func (m *murmur2) Write(b []byte) (int, error) { m.key = append(m.key, b...); return len(b), nil }
func (m *murmur2) Sum32() uint32               { return event.Murmur2(m.key) & 0x7fffffff }
func (m *murmur2) Sum(b []byte) []byte {
	s := m.Sum32()
	return append(b, byte(s>>24), byte(s>>16), byte(s>>8), byte(s))
}
func (m *murmur2) Reset()         { m.key = m.key[:0] }
func (m *murmur2) Size() int      { return 4 }
func (m *murmur2) BlockSize() int { return 4 }

// gokaLogger writes goka's messages at debug level. This package logs what matters.
type gokaLogger struct{ log *slog.Logger }

func (l gokaLogger) Printf(format string, args ...any) {
	l.log.Debug("message from goka", "detail", fmt.Sprintf(format, args...))
}
func (l gokaLogger) Print(args ...any) { l.Println(args...) }
func (l gokaLogger) Println(args ...any) {
	l.log.Debug("message from goka", "detail", fmt.Sprint(args...))
}
