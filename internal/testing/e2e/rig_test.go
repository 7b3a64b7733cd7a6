package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/rules"
)

// rig is topics and Redis keys of the test's own, and the means to look into them.
type rig struct {
	t          *testing.T
	prefix     string
	names      topics.Names
	brokers    []string
	partitions int32
	set        *rules.Set
	rules      string // the rule file

	redisAddr string
	redis     redis.UniversalClient

	client sarama.Client
	fetch  sarama.Client // of its own: a fetch that waits holds up its connection
	send   sarama.SyncProducer
	admin  sarama.ClusterAdmin
}

// newRig makes the topics, and a rule file of what follows spec's rules.
func newRig(t *testing.T, ruleList string) *rig {
	t.Helper()
	return newRigOn(t, servers.Kafka(t), servers.Redis(t), ruleList)
}

func newRigOn(t *testing.T, brokers []string, redisAddr, ruleList string) *rig {
	t.Helper()
	r := newBareRig(t, brokers, redisAddr, ruleList, 4)
	r.makeTopics()
	return r
}

// newBareRig leaves it to the first aggregator to make the topics.
func newBareRig(t *testing.T, brokers []string, redisAddr, ruleList string, partitions int32) *rig {
	t.Helper()
	r := &rig{t: t, brokers: brokers, redisAddr: redisAddr, prefix: servers.Name(t), partitions: partitions}
	r.names = topics.NamesOf(r.prefix)
	src := ruleSet(ruleList)
	r.rules = filepath.Join(t.TempDir(), "rules.yaml")
	set, err := rules.CompileWith(r.rules, src, besideRules)
	if err != nil {
		t.Fatal(err)
	}
	r.set = set
	if err := errors.Join(os.WriteFile(r.rules, src, 0o600), os.WriteFile(filepath.Join(filepath.Dir(r.rules), "overrides.csv"), []byte(overrides), 0o600)); err != nil {
		t.Fatal(err)
	}
	r.connect()
	return r
}

// ruleSet is a rule file with what follows spec's rules.
func ruleSet(list string) []byte {
	return []byte("apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: e2e}\nspec:\n" + networkLists + "  rules:\n" + list)
}

func (r *rig) makeTopics() {
	t := r.t
	t.Helper()
	found, err := topics.Ensure(t.Context(), r.brokers, saramaConfig(), topics.Config{Prefix: r.prefix, Partitions: r.partitions})
	if err != nil {
		t.Fatal(err)
	}
	if found.Partitions != r.partitions {
		t.Fatalf("%d partitions", found.Partitions)
	}
	servers.DropTopics(t, r.brokers, r.prefix)
}

// in is the rig as a subtest uses it.
func (r *rig) in(t *testing.T) *rig {
	sub := *r
	sub.t = t
	return &sub
}

func saramaConfig() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Producer.Return.Successes = true
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	cfg.Producer.MaxMessageBytes = 2<<20 - 64<<10 // a batch of it has room in the topic
	cfg.Consumer.MaxWaitTime = 20 * time.Millisecond
	cfg.Metadata.AllowAutoTopicCreation = false
	return cfg
}

func (r *rig) connect() {
	t := r.t
	t.Helper()
	var err error
	if r.client, err = sarama.NewClient(r.brokers, saramaConfig()); err != nil {
		t.Fatal(err)
	}
	if r.fetch, err = sarama.NewClient(r.brokers, saramaConfig()); err != nil {
		t.Fatal(err)
	}
	if r.send, err = sarama.NewSyncProducerFromClient(r.client); err != nil {
		t.Fatal(err)
	}
	if r.admin, err = sarama.NewClusterAdminFromClient(r.client); err != nil {
		t.Fatal(err)
	}
	r.redis = redis.NewClient(&redis.Options{Addr: r.redisAddr})
	t.Cleanup(func() {
		_ = r.send.Close()
		_ = r.client.Close()
		_ = r.fetch.Close()
		r.dropKeys()
		_ = r.redis.Close()
	})
}

// dropKeys removes the test's blocklist: one shard's three keys.
func (r *rig) dropKeys() {
	for _, key := range []string{"verdicts", "expiry", "changes"} {
		r.redis.Del(context.WithoutCancel(r.t.Context()), r.shardKey(key))
	}
}

func (r *rig) shardKey(name string) string { return "{" + r.prefix + ":0}:" + name }

// aggregator prepares an aggregator. Options that come later win.
func (r *rig) aggregator(name string, options ...string) *Process {
	r.t.Helper()
	args := append([]string{"--kafka", r.brokers[0], "--redis", r.redisAddr, "--rules", r.rules, "--prefix", r.prefix, "--partitions", strconv.Itoa(int(r.partitions)),
		"--checkpoint-every", "200ms", "--session-timeout", "6s"}, options...)
	return newProcess(r.t, name, program(r.t, "aggregator"), args...)
}

// enforcer starts an enforcer and waits for its first snapshot.
func (r *rig) enforcer() *Process {
	r.t.Helper()
	return newProcess(r.t, "enforcer", program(r.t, "enforcer"), "--redis", r.redisAddr, "--prefix", r.prefix).Start().Ready()
}

func (r *rig) end(topic string, partition int32) int64 {
	r.t.Helper()
	return r.offset(topic, partition, sarama.OffsetNewest)
}

func (r *rig) offset(topic string, partition int32, of int64) (offset int64) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("an end of %s/%d is told", topic, partition), func() bool {
		var err error
		if offset, err = r.client.GetOffset(topic, partition, of); err != nil {
			_ = r.client.RefreshMetadata(topic) // its leader may have been started anew
		}
		return err == nil
	})
	return offset
}

// caughtUp waits until checkpoints cover all that is in the event topic, then all that was
// forwarded: from then on, every verdict is out too, but for ends that moved within the last
// second.
func (r *rig) caughtUp() {
	r.t.Helper()
	began := time.Now()
	for _, topic := range []string{r.names.Events, r.names.Loop} {
		for p := range r.partitions {
			end, have := r.end(topic, p), int64(-1)
			eventually(r.t, "a checkpoint covers "+topic, func() bool {
				have = r.committed(topic, p)
				return have >= end || end == 0
			})
		}
	}
	r.t.Logf("all is counted, after %v more", time.Since(began).Round(time.Millisecond))
}

func (r *rig) committed(topic string, partition int32) int64 {
	reply, err := r.admin.ListConsumerGroupOffsets(r.names.Group, map[string][]int32{topic: {partition}})
	if err != nil {
		_ = r.client.RefreshCoordinator(r.names.Group)
		return -1 // the coordinator is moving
	}
	b := reply.GetBlock(topic, partition)
	if b == nil || b.Err != sarama.ErrNoError {
		return -1
	}
	return b.Offset
}

// records calls with for every record of a partition, in order, up to its present end.
func (r *rig) records(topic string, partition int32, with func(m *sarama.ConsumerMessage)) {
	r.t.Helper()
	oldest, end := r.offset(topic, partition, sarama.OffsetOldest), r.end(topic, partition)
	if oldest == end {
		return
	}
	c, err := sarama.NewConsumerFromClient(r.fetch)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	pc, err := c.ConsumePartition(topic, partition, oldest)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = pc.Close() }()
	for {
		select {
		case m := <-pc.Messages():
			with(m)
			if m.Offset >= end-1 {
				return
			}
		case <-time.After(within):
			r.t.Fatalf("%s/%d cannot be read to its end", topic, partition)
		}
	}
}

// patient is a producer that goes on while leaders move, and puts each record into the log once. A
// log that is cut it does not survive.
func (r *rig) patient() sarama.SyncProducer {
	r.t.Helper()
	cfg := saramaConfig()
	cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests = true, 1
	cfg.Producer.Retry.Max = 100
	p, err := sarama.NewSyncProducer(r.brokers, cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// put appends records to the topics and partitions that they name.
func (r *rig) put(msgs []*sarama.ProducerMessage) {
	r.t.Helper()
	r.putOver(r.send, msgs)
}

func (r *rig) putOver(to sarama.SyncProducer, msgs []*sarama.ProducerMessage) {
	r.t.Helper()
	for len(msgs) > 0 {
		n := min(len(msgs), 2000)
		if err := to.SendMessages(msgs[:n]); err != nil {
			if errs, ok := errors.AsType[sarama.ProducerErrors](err); ok {
				err = errs[0]
			}
			r.t.Fatal(err)
		}
		msgs = msgs[n:]
	}
}
