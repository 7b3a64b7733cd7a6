package e2e

import (
	"strconv"
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// A replica that lacks events which were counted becomes the leader, and the log grows beyond where
// it was: the aggregator stops and says so, and when an operator accepts the loss it counts what is
// new, and nothing twice.
func TestUncleanElectionIsSaid(t *testing.T) {
	servers.Nightly(t, "brokers")
	t.Parallel() // it mostly waits
	kafka := servers.StartKafkaCluster(t, 3, nil)
	elder, younger := kafka.Nodes[0], kafka.Nodes[1]
	r := newBareRig(t, kafka.Addrs(), servers.Redis(t), searches, 1)
	r.replicate(r.names.Events, 1, 2)
	bootstrap := strings.Join(r.brokers, ",")
	a := r.aggregator("a", "--kafka", bootstrap).Start().Ready()
	r.putEach(100, 2)
	r.caughtUp()

	younger.Kill()
	r.led(1)
	r.putEach(100, 2) // which only the elder one has
	r.caughtUp()
	before := r.end(r.names.Events, 0)
	yes := "true"
	eventually(t, "an unclean election is allowed", func() bool {
		if _, err := r.client.RefreshController(); err != nil { // it may have been the younger one
			return false
		}
		admin, err := sarama.NewClusterAdminFromClient(r.client)
		return err == nil && admin.IncrementalAlterConfig(sarama.TopicResource, r.names.Events, map[string]sarama.IncrementalAlterConfigsEntry{
			"unclean.leader.election.enable": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &yes}}, false) == nil
	})
	elder.Kill()
	kafka.Start(younger)
	r.led(2)
	for r.end(r.names.Events, 0) <= before { // the log is as long as it was, and longer
		r.putEach(100, 1)
	}
	if status := a.ended(); status != 1 || !strings.Contains(a.Logs(), "was cut") || !strings.Contains(a.Logs(), "--accept-new-topic") {
		t.Errorf("exits with %d", status)
	}

	a.args = append(a.args, "--accept-new-topic")
	a.Start().Ready()
	r.caughtUp()
	// Of each uid: two that both had, two that were lost after they had been counted, and the new
	// ones.
	total := strconv.FormatInt(4+(r.end(r.names.Events, 0)-200)/100, 10)
	d := differencesOf("counts")
	explain(t, uidKeys("u0", "u50", "u99"), func(key string, reply explainReply) {
		if d.compared(); reply.list[0].Count.String() != total {
			d.add("%s has %v, not %s", key, reply.list[0].Count, total)
		}
	}, a)
	d.report(t)
}

// replicate makes a topic with one partition whose replicas are these, the first of which leads.
func (r *rig) replicate(topic string, replicas ...int32) {
	r.t.Helper()
	value := func(s string) *string { return &s }
	err := r.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: map[int32][]int32{0: replicas},
		ConfigEntries: map[string]*string{"message.timestamp.type": value("LogAppendTime"), "min.insync.replicas": value("1"), "max.message.bytes": value("2097152")}}, false)
	if err != nil {
		r.t.Fatal(err)
	}
	r.led(replicas[0])
}

// led waits until the event partition has this leader.
func (r *rig) led(by int32) {
	r.t.Helper()
	eventually(r.t, "the leader has changed", func() bool {
		if err := r.client.RefreshMetadata(r.names.Events); err != nil {
			return false
		}
		b, err := r.client.Leader(r.names.Events, 0)
		return err == nil && b.ID() == by
	})
}
