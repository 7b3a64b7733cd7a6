package main

import (
	"fmt"

	"github.com/IBM/sarama"
)

// sizes tells what a run has left in Kafka: records, and bytes on disk as they are compressed.
func (b *bench) sizes(prefix string) (string, error) {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	client, err := sarama.NewClient(b.brokers, cfg)
	if err != nil {
		return "", err
	}
	defer client.Close()
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return "", err
	}
	var ids []int32
	for _, broker := range client.Brokers() {
		ids = append(ids, broker.ID())
	}
	dirs, err := admin.DescribeLogDirs(ids)
	if err != nil {
		return "", fmt.Errorf("ask for the logs' sizes: %w", err)
	}
	bytes := map[string]int64{}
	for _, of := range dirs {
		for _, dir := range of {
			for _, t := range dir.Topics {
				for _, p := range t.Partitions {
					bytes[t.Topic] += p.Size
				}
			}
		}
	}
	text := ""
	for _, t := range []struct{ topic, name string }{{prefix + ".events", "events"}, {prefix + "-table", "changelog"}, {prefix + "-loop", "forwards"}} {
		var records int64
		for p := range int32(b.partitions) {
			end, err := client.GetOffset(t.topic, p, sarama.OffsetNewest)
			if err != nil {
				return "", err
			}
			records += end
		}
		text += fmt.Sprintf("  %s: %d records, %.0f B each on disk", t.name, records, float64(bytes[t.topic])/float64(max(records, 1)))
	}
	return text, nil
}
