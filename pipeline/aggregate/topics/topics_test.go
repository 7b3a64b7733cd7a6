package topics

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// go-metrics, which sarama links, has one ticker for the life of the process.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

// cluster has no topics of its prefix yet.
type cluster struct {
	addrs  []string
	prefix string
}

// onEach runs a test on kfake with three brokers, and on Kafka if TALLYGATE_TEST_KAFKA names one.
func onEach(t *testing.T, test func(t *testing.T, c cluster)) {
	t.Run("kfake", func(t *testing.T) {
		servers.Embedded(t)
		k, err := kfake.NewCluster(kfake.NumBrokers(3))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(k.Close)
		test(t, cluster{k.ListenAddrs(), "tg"})
	})
	t.Run("kafka", func(t *testing.T) {
		c := cluster{servers.Kafka(t), servers.Name(t)}
		t.Cleanup(func() {
			for _, n := range NamesOf(c.prefix).All() {
				_ = c.admin(t).DeleteTopic(n)
			}
		})
		test(t, c)
	})
}

func saramaConfig() *sarama.Config {
	conf := sarama.NewConfig()
	conf.Version = sarama.V2_8_0_0
	conf.Metadata.Retry.Max = 1
	conf.Metadata.Retry.Backoff = 10 * time.Millisecond
	return conf
}

func (c cluster) admin(t *testing.T) sarama.ClusterAdmin {
	a, err := sarama.NewClusterAdmin(c.addrs, saramaConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func (c cluster) create(t *testing.T, topic string, partitions int32, config map[string]string) {
	d := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: map[string]*string{}}
	for k, v := range config {
		d.ConfigEntries[k] = &v
	}
	a := c.admin(t)
	if err := a.CreateTopic(topic, d, false); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if all, err := a.ListTopics(); err == nil && all[topic].NumPartitions == partitions {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the topic does not appear")
		}
	}
}

func (c cluster) ensure(t *testing.T, cfg Config) (*Layout, error) {
	cfg.Prefix = c.prefix
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return Ensure(ctx, c.addrs, saramaConfig(), cfg)
}

func (c cluster) settings(t *testing.T, topic string) map[string]string {
	results, err := c.admin(t).DescribeConfigs([]*sarama.ConfigResource{{Type: sarama.TopicResource, Name: topic}}, sarama.DescribeConfigsOptions{})
	if err != nil || len(results) != 1 || results[0].ErrorCode != 0 {
		t.Fatal(results, err)
	}
	is := make(map[string]string)
	for _, e := range results[0].Configs {
		is[e.Name] = e.Value
	}
	return is
}

func TestWhatIsMissingIsCreatedOnce(t *testing.T) {
	onEach(t, func(t *testing.T, c cluster) {
		// Members of one group that start together.
		layouts, errs := make([]*Layout, 4), make([]error, 4)
		var members sync.WaitGroup
		for i := range layouts {
			members.Go(func() { layouts[i], errs[i] = c.ensure(t, Config{Partitions: 5}) })
		}
		members.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		again, err := c.ensure(t, Config{Partitions: 5})
		if err != nil {
			t.Fatal(err)
		}
		n := NamesOf(c.prefix)
		for i, l := range append(layouts, again) {
			if l.Partitions != 5 || l.Names != n || len(l.Advice) != 0 {
				t.Fatalf("member %d found %+v", i, l)
			}
			for _, name := range n.All() {
				if l.IDs[name] == (sarama.Uuid{}) || l.IDs[name] != again.IDs[name] {
					t.Fatalf("member %d found topic id %v of %s, later %v", i, l.IDs[name], name, again.IDs[name])
				}
			}
		}
		for topic, want := range map[string]map[string]string{
			n.Events:      {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete", "max.message.bytes": "2097152"},
			n.Loop:        {"retention.ms": "604800000", "cleanup.policy": "delete"},
			n.Table:       {"cleanup.policy": "compact", "segment.bytes": "33554432", "unclean.leader.election.enable": "false"},
			n.Verdicts:    {"cleanup.policy": "compact,delete", "retention.ms": "7776000000", "message.timestamp.type": "LogAppendTime"},
			n.Audit:       {"cleanup.policy": "delete", "retention.ms": "2592000000", "message.timestamp.type": "LogAppendTime"},
			n.Rules:       {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
			n.DeadLetters: {"cleanup.policy": "delete", "retention.ms": "1209600000"},
		} {
			is := c.settings(t, topic)
			for k, v := range want {
				if is[k] != v {
					t.Errorf("%s: %s is %s, want %s", topic, k, is[k], v)
				}
			}
		}
	})
}

func TestReplicasAreThreeWhereThereAreThreeBrokers(t *testing.T) {
	k, err := kfake.NewCluster(kfake.NumBrokers(4))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	c := cluster{k.ListenAddrs(), "tg"}
	if _, err := c.ensure(t, Config{}); err != nil {
		t.Fatal(err)
	}
	described, err := c.admin(t).DescribeTopics([]string{"tg-table", "tg.rules"})
	if err != nil {
		t.Fatal(err)
	}
	for i, partitions := range []int{12, 1} {
		if got := described[i].Partitions; len(got) != partitions || len(got[0].Replicas) != 3 {
			t.Errorf("%s: %d partitions, %d replicas", described[i].Name, len(got), len(got[0].Replicas))
		}
	}
	if v := c.settings(t, "tg-table")["min.insync.replicas"]; v != "2" {
		t.Errorf("min.insync.replicas is %s", v)
	}
}

func TestAllThatIsWrongIsSaidAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, c cluster) {
		n := NamesOf(c.prefix)
		c.create(t, n.Events, 4, map[string]string{"cleanup.policy": "compact"})
		c.create(t, n.Table, 4, map[string]string{"cleanup.policy": "delete", "max.message.bytes": "1000"})
		c.create(t, n.Loop, 4, map[string]string{"retention.ms": "3600000"})
		c.create(t, n.Verdicts, 4, map[string]string{"cleanup.policy": "delete", "max.message.bytes": "1000"})
		c.create(t, n.Audit, 2, map[string]string{"max.message.bytes": "1000"})
		c.create(t, n.DeadLetters, 4, map[string]string{"max.message.bytes": "1000"})
		_, err := c.ensure(t, Config{})
		if err == nil {
			t.Fatal("all is well")
		}
		t.Log(err)
		alter := "kafka-configs.sh --bootstrap-server " + strings.Join(c.addrs, ",") + " --alter --entity-type topics --entity-name "
		for _, want := range []string{
			alter + n.Events + " --add-config 'cleanup.policy=delete'",
			alter + n.Events + " --add-config 'message.timestamp.type=LogAppendTime'",
			alter + n.Table + " --add-config 'cleanup.policy=compact'",
			alter + n.Table + " --add-config 'max.message.bytes=2097152'",
			alter + n.Loop + " --add-config 'retention.ms=604800000'",
			alter + n.Verdicts + " --add-config 'cleanup.policy=[compact,delete]'",
			alter + n.Verdicts + " --add-config 'max.message.bytes=1048576'",
			alter + n.Audit + " --add-config 'max.message.bytes=1048576'",
			alter + n.DeadLetters + " --add-config 'max.message.bytes=2097152'",
			"--alter --topic " + n.Audit + " --partitions 4",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("not said: %s", want)
			}
		}
	})
}

func TestAChangedPartitionCountIsRefusedBeforeAnythingIsCreated(t *testing.T) {
	onEach(t, func(t *testing.T, c cluster) {
		n := NamesOf(c.prefix)
		c.create(t, n.Events, 6, map[string]string{"message.timestamp.type": "LogAppendTime"})
		c.create(t, n.Table, 3, map[string]string{"cleanup.policy": "compact"})
		c.create(t, n.Rules, 2, map[string]string{"cleanup.policy": "compact"})
		_, err := c.ensure(t, Config{Partitions: 6})
		for _, want := range []string{n.Table + " has 3 partitions, others have 6", "migrate to 6", n.Rules + " has 2"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("not said: %s in %v", want, err)
			}
		}
		topics, err := c.admin(t).ListTopics()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := topics[n.Loop]; ok {
			t.Fatal("the loop topic was created")
		}
	})
}

func TestWhatOnlyShouldBeIsAdvice(t *testing.T) {
	onEach(t, func(t *testing.T, c cluster) {
		n := NamesOf(c.prefix)
		c.create(t, n.Events, 2, nil)
		c.create(t, n.Table, 2, map[string]string{"cleanup.policy": "compact", "segment.bytes": "1073741824"})
		l, err := c.ensure(t, Config{ProducerTime: true})
		if err != nil || strings.Contains(strings.Join(l.Advice, "\n"), "cannot be changed") {
			t.Fatal("a count without a setting is advised against:", l, err)
		}
		l, err = c.ensure(t, Config{ProducerTime: true, Partitions: 12})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(l.Advice, "\n")
		for _, want := range []string{n.Table + ": segment.bytes is 1073741824", n.Events + ": max.message.bytes is 1048588", "2 partitions, and that cannot be changed to the 12"} {
			if !strings.Contains(got, want) {
				t.Errorf("no advice about %s in:\n%s", want, got)
			}
		}
		if strings.Contains(got, n.Events+": message.timestamp.type") {
			t.Error("advice about a setting that was chosen")
		}
	})
}

func TestATopicThatIsCreatedAnewHasAnotherID(t *testing.T) {
	onEach(t, func(t *testing.T, c cluster) {
		before, err := c.ensure(t, Config{Partitions: 1})
		if err != nil {
			t.Fatal(err)
		}
		table := NamesOf(c.prefix).Table
		if err := c.admin(t).DeleteTopic(table); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			after, err := c.ensure(t, Config{})
			if err == nil && after.IDs[table] != before.IDs[table] {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("the id stays the same:", err)
			}
		}
	})
}

func TestBrokersThatAreAwayAreNamed(t *testing.T) {
	_, err := cluster{[]string{"127.0.0.1:1", "127.0.0.1:2"}, "tg"}.ensure(t, Config{})
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1, 127.0.0.1:2") || !errors.Is(err, sarama.ErrOutOfBrokers) {
		t.Fatal(err)
	}
}

func TestAWrongConfigSaysAllThatIsWrong(t *testing.T) {
	_, err := Ensure(t.Context(), nil, saramaConfig(), Config{Prefix: "a b", Partitions: -1, LoopRetention: time.Hour, AuditRetention: -1})
	for _, want := range []string{"a b.events", "Partitions", "LoopRetention", "retention of -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	old := saramaConfig()
	old.Version = sarama.V2_6_0_0
	if _, err := Ensure(t.Context(), nil, old, Config{}); err == nil || !strings.Contains(err.Error(), "2.8.0") {
		t.Errorf("an old version: %v", err)
	}
}

// A new topic of rules keeps all versions. Older programs made it compacted: then there is no way back to one, and
// one command mends that. A topic that deletes rules by age or size is refused.
func TestTheRulesTopicKeepsItsVersions(t *testing.T) {
	onEach(t, func(t *testing.T, c cluster) {
		n := NamesOf(c.prefix)
		c.create(t, n.Rules, 1, map[string]string{"cleanup.policy": "compact"})
		l, err := c.ensure(t, Config{Partitions: 1})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(l.Advice, "\n")
		for _, want := range []string{n.Rules + ": cleanup.policy is compact: older versions of the rules vanish", "--entity-name " + n.Rules + " --add-config 'retention.ms=-1,retention.bytes=-1,cleanup.policy=delete'"} {
			if !strings.Contains(got, want) {
				t.Errorf("no advice about %s in:\n%s", want, got)
			}
		}
		for _, wrong := range []map[string]string{
			{"cleanup.policy": "delete", "retention.ms": "86400000", "retention.bytes": "-1"},
			{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "1000000"},
			{"cleanup.policy": "compact,delete", "retention.ms": "86400000", "retention.bytes": "-1"},
		} {
			c.set(t, n.Rules, wrong)
			if _, err := c.ensure(t, Config{Partitions: 1}); err == nil || !strings.Contains(err.Error(), n.Rules+": retention.") || !strings.Contains(err.Error(), "cleanup.policy=delete'") {
				t.Errorf("%v: %v", wrong, err)
			}
		}
		c.set(t, n.Rules, map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"})
		if l, err = c.ensure(t, Config{Partitions: 1}); err != nil || strings.Contains(strings.Join(l.Advice, "\n"), n.Rules) {
			t.Errorf("%v %v", l, err)
		}
	})
}

// set changes a topic's settings, and waits until a broker that is asked knows them: the controller answers before. What
// is not named becomes the default.
func (c cluster) set(t *testing.T, topic string, settings map[string]string) {
	t.Helper()
	entries := map[string]*string{}
	for k, v := range settings {
		entries[k] = &v
	}
	admin := c.admin(t)
	if err := admin.AlterConfig(sarama.TopicResource, topic, entries, false); err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "the settings are in force", func() bool {
		is, err := admin.DescribeConfigs([]*sarama.ConfigResource{{Type: sarama.TopicResource, Name: topic, ConfigNames: slices.Collect(maps.Keys(settings))}}, sarama.DescribeConfigsOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(is[0].Configs, func(e sarama.ConfigEntry) bool { return e.Value != settings[e.Name] })
	})
}
