package aggregate

import (
	"testing"

	"github.com/IBM/sarama"
)

// What kafka-consumer-groups.sh does to a stopped group: checkpoints decide where counting
// continues, not the group.
func TestTheGroupsOffsetsDoNotMatter(t *testing.T) {
	moves := map[string]func(r *rig){
		"to the earliest": func(r *rig) { r.commit(sarama.OffsetOldest) },
		"to the latest":   func(r *rig) { r.commit(sarama.OffsetNewest) },
		"beyond the end":  func(r *rig) { r.commit(1 << 40) },
		"deleted":         func(r *rig) { r.deleteOffsets(false) },
		"the group too":   func(r *rig) { r.deleteOffsets(true) },
	}
	t.Parallel()
	for name, move := range moves {
		t.Run(name, func(t *testing.T) {
			onRealKafka(t, func(t *testing.T, r *rig) {
				set := compile(t, byIPAndUID)
				m, l := r.counting(set, 200)
				m.end(t)
				l.emit(200)
				move(r)
				m = r.begin(set)
				l.counted(m)
				l.stays(m)
				m.end(t)
				move(r)
				m = r.begin(set)
				l.emit(20)
				l.counted(m)
				l.stays(m)
			})
		})
	}
}

// commit moves the group's offsets of both topics. sarama.OffsetOldest and OffsetNewest are where
// each partition begins and ends.
func (r *rig) commit(to int64) {
	r.t.Helper()
	if err := r.client.RefreshCoordinator(r.names.Group); err != nil {
		r.t.Fatal(err)
	}
	coordinator, err := r.client.Coordinator(r.names.Group)
	if err != nil {
		r.t.Fatal(err)
	}
	req := &sarama.OffsetCommitRequest{Version: 2, ConsumerGroup: r.names.Group, ConsumerGroupGeneration: sarama.GroupGenerationUndefined, RetentionTime: -1}
	for _, topic := range []string{r.names.Events, r.names.Loop} {
		for p := range int32(rigPartitions) {
			offset := to
			if to < 0 {
				if offset, err = r.client.GetOffset(topic, p, to); err != nil {
					r.t.Fatal(err)
				}
			}
			req.AddBlock(topic, p, offset, 0, "")
		}
	}
	resp, err := coordinator.CommitOffset(req)
	if err != nil {
		r.t.Fatal(err)
	}
	for topic, partitions := range resp.Errors {
		for p, err := range partitions {
			if err != sarama.ErrNoError {
				r.t.Fatalf("move %s/%d: %v", topic, p, err)
			}
		}
	}
}

func (r *rig) deleteOffsets(group bool) {
	r.t.Helper()
	admin, err := sarama.NewClusterAdminFromClient(r.client)
	if err != nil {
		r.t.Fatal(err)
	}
	if group {
		if err := admin.DeleteConsumerGroup(r.names.Group); err != nil {
			r.t.Fatal(err)
		}
		return
	}
	for _, topic := range []string{r.names.Events, r.names.Loop} {
		for p := range int32(rigPartitions) {
			if err := admin.DeleteConsumerGroupOffset(r.names.Group, topic, p); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}
