package aggregate

import "github.com/IBM/sarama"

// Rules with long lists in their files make a record that auxiliary output may not have.
const (
	maxRuleRecord  = 8 << 20 // before compression
	ruleRecordRoom = 1 << 10 // what else is in its batch
)

// producer returns what publishes a record of so many bytes. A large one is compressed, so that the topic
// takes it: most of it is text in base64. That needs connections of its own, which nothing else pays for.
func (b *rulebook) producer(size int) (sarama.SyncProducer, error) {
	bulk := b.agg.clients.bulk
	if size+ruleRecordRoom <= bulk.Config().Producer.MaxMessageBytes {
		return sarama.NewSyncProducerFromClient(bulk)
	}
	cfg := b.agg.cfg.sarama()
	cfg.Producer.MaxMessageBytes, cfg.Producer.Compression = maxRuleRecord, sarama.CompressionZSTD
	return sarama.NewSyncProducer(b.agg.cfg.Brokers, cfg)
}
