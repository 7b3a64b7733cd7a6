package doctor

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

// A broker that gives every owner a producer id of its own fences no owner.
func TestABrokerThatDoesNotFence(t *testing.T) {
	t.Parallel()
	k, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	next := int64(1000)
	k.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		next++
		resp.ProducerID, resp.ProducerEpoch = next, 0
		return resp, nil, true
	})
	r := examine(t, Config{Kafka: brokers(k.ListenAddrs()...)})
	wants(t, r, "fencing", Fail, "of an owner that was replaced was accepted", "use Apache Kafka 2.8")
}

func TestAPrincipalThatMayNotUseItsTransactionalIDs(t *testing.T) {
	k, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	k.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		return resp, nil, true
	})
	r := examine(t, Config{Kafka: brokers(k.ListenAddrs()...)})
	wants(t, r, "acls", Fail, "may not Write the transactional ids tallygate-*", "--operation Write --transactional-id tallygate- --resource-pattern-type prefixed")
	wants(t, r, "fencing", Warn, "not tested")
}

// Behind a broker's start, its groups are not loaded at once.
func TestACoordinatorThatLoads(t *testing.T) {
	t.Parallel()
	k, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	loading := []int16{kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code}
	left := slices.Clone(loading)
	k.ControlKey(int16(kmsg.DescribeGroups), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		if len(left) == 0 {
			left = slices.Clone(loading) // for the next check
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
		group := kmsg.NewDescribeGroupsResponseGroup()
		group.Group, group.ErrorCode = req.(*kmsg.DescribeGroupsRequest).Groups[0], left[0]
		resp.Groups = append(resp.Groups, group)
		left = left[1:]
		return resp, nil, true
	})
	ensure(t, k.ListenAddrs(), topics.Config{Prefix: "tallygate", Partitions: 1})
	r := examine(t, Config{Kafka: brokers(k.ListenAddrs()...)})
	wants(t, r, "group", Warn, "no aggregator has run in the group tallygate yet")
	for _, got := range r.Results {
		if got.Name == "acls" && got.Status == Fail {
			t.Errorf("the rights are %+v", got)
		}
	}
}

// group judges members of a group that has nothing to count.
func group(all ...topics.Member) []Result {
	var c health.Cluster
	for i := range all {
		c.Members = append(c.Members, api.Status{Instance: string(rune('a' + i)), Ready: true, Aggregator: &api.AggregatorStatus{Rules: api.RulesStatus{Name: all[i].Rules, FileOK: true}}})
	}
	differences(c.Members, all)
	o := Config{Kafka: brokers()}.look()
	o.Cluster.Took(c, nil, o.Now)
	return judged("group", o)
}

func TestMembersWithOtherRules(t *testing.T) {
	t.Parallel()
	one, other := topics.Member{Rules: "0123456789"}, topics.Member{}
	if r := group(one, one); r != nil {
		t.Errorf("members that are alike: %+v", r)
	}
	r := group(one, one, other)
	if len(r) != 1 || r[0].Status != Warn || !strings.Contains(r[0].Detail, "01234567: a, b; unknown: c") {
		t.Errorf("members that differ: %+v", r)
	}
}

// What must be the same for all members is compared. Members of an older version do not tell, which is no difference.
func TestMembersThatDoNotAgree(t *testing.T) {
	t.Parallel()
	meets := topics.Member{Redis: topics.WithRedis, Shards: 1, BrokerTime: "append"}
	if r := group(meets, topics.Member{}, meets); r != nil {
		t.Errorf("members that agree: %+v", r)
	}
	r := group(meets, topics.Member{Redis: topics.WithoutRedis, BrokerTime: "append"}, topics.Member{Redis: topics.WithRedis, Shards: 2, BrokerTime: "create"})
	if len(r) != 3 {
		t.Fatalf("%+v", r)
	}
	for i, want := range []string{"b has no Redis, and a has one: the verdicts of the first one's partitions reach no enforcer", "c has --shards 2, and a has 1", "c has --broker-time create, and a has append"} {
		if r[i].Status != Fail || r[i].Detail != want {
			t.Errorf("%+v, want %q", r[i], want)
		}
	}
}

func TestAnOldBroker(t *testing.T) {
	missing := missingAPIs([]sarama.ApiVersionsResponseKey{{ApiKey: 0, MaxVersion: 8}, {ApiKey: 1, MaxVersion: 11}, {ApiKey: 3, MaxVersion: 9}, {ApiKey: 22, MaxVersion: 2}, {ApiKey: 24, MaxVersion: 1}, {ApiKey: 32, MaxVersion: 2}})
	if len(missing) != 2 {
		t.Errorf("missing are %q", missing)
	}
}

func TestRulesAgainstTheTopics(t *testing.T) {
	t.Parallel()
	s := stack(t)
	ensure(t, s.Kafka, topics.Config{Prefix: "short", Partitions: 1, VerdictRetention: time.Hour, EventRetention: time.Hour})
	r := examine(t, Config{Kafka: brokers(s.Kafka...), Prefix: "short", Rules: writeFile(t, goodRules)})
	wants(t, r, "retention", Fail, "short.verdicts keeps records for 1h0m0s, 2d is needed", "rule search", "--entity-name short.verdicts --add-config 'retention.ms=172800000'")
	wants(t, r, "retention", Warn, "short.events", "never counted")
	wants(t, r, "state-size", OK, "short-table allows 2097152")

	strict := strings.Replace(goodRules, "  rules:\n", "  rules:\n    - {name: yearly, match: {api: x}, limit: 5, per: 365d, window: tumbling, strict: true}\n", 1)
	r = examine(t, Config{Kafka: brokers(s.Kafka...), Prefix: "short", Rules: writeFile(t, strict)})
	wants(t, r, "retention", Fail, "short.verdicts keeps records for 1h0m0s, 365d is needed", "what rule yearly has counted would be lost")

	r = examine(t, Config{Kafka: brokers("127.0.0.1:1"), Rules: writeFile(t, "nonsense")})
	wants(t, r, "rules", Fail, "rules.yaml:1:1", "tallygate check")
	r = examine(t, Config{Kafka: brokers("127.0.0.1:1"), Rules: "/nowhere/rules.yaml"})
	wants(t, r, "rules", Fail, "/nowhere/rules.yaml")
}

func TestTopicsThatAreWrong(t *testing.T) {
	t.Parallel()
	k, err := kfake.NewCluster(kfake.NumBrokers(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	admin, err := sarama.NewClusterAdmin(k.ListenAddrs(), sarama.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	create := func(topic string, partitions int32, settings map[string]string) {
		detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: map[string]*string{}}
		for k, v := range settings {
			detail.ConfigEntries[k] = &v
		}
		if err := admin.CreateTopic(topic, detail, false); err != nil {
			t.Fatal(err)
		}
	}
	create("tg.events", 4, map[string]string{"message.timestamp.type": "LogAppendTime", "max.message.bytes": "2097152", "retention.bytes": "1000"})
	create("tg-table", 3, map[string]string{"cleanup.policy": "delete"})
	create("tg-loop", 4, map[string]string{"retention.ms": "3600000"})
	create("tg.rules", 1, map[string]string{"cleanup.policy": "compact"})
	r := examine(t, Config{Kafka: brokers(k.ListenAddrs()...), Prefix: "tg"})
	if r.Well {
		t.Error("all is well")
	}
	wants(t, r, "topics", Fail, "tg-table has 3 partitions, others have 4", "migrate to 4 partitions")
	wants(t, r, "topics", Fail, "tg-table: cleanup.policy is delete", "--entity-name tg-table --add-config 'cleanup.policy=compact'")
	wants(t, r, "topics", Warn, "there is no topic tg.verdicts", "--create --topic tg.verdicts --partitions 4 --replication-factor 3")
	wants(t, r, "replication", Warn, "tg.events (1)", "kafka-reassign-partitions.sh")
	wants(t, r, "topics", Fail, "tg-loop: retention.ms is 3600000")
	wants(t, r, "topics", Warn, "tg.rules: cleanup.policy is compact", "'retention.ms=-1,retention.bytes=-1,cleanup.policy=delete'")
	wants(t, r, "retention", Warn, "tg.events: retention.bytes is 1000")
	wants(t, r, "clocks", OK, "this machine, broker")
}

func TestBrokerSettings(t *testing.T) {
	e := &kafkaSide{brokers: make([]*sarama.Broker, 3)}
	if r := e.judgeBroker(1, map[string]string{"producer.id.expiration.ms": "86400000", "transactional.id.expiration.ms": "604800000", "offsets.topic.replication.factor": "3"}); len(r) != 0 {
		t.Errorf("good settings: %+v", r)
	}
	r := &Report{Results: e.judgeBroker(1, map[string]string{"producer.id.expiration.ms": "43200000", "transactional.id.expiration.ms": "86400000", "offsets.topic.replication.factor": "1"})}
	wants(t, r, "kafka-settings", Fail, "producer.id.expiration.ms is 12h0m0s", "producer.id.expiration.ms=86400000")
	wants(t, r, "kafka-settings", Fail, "transactional.id.expiration.ms is 1d")
	wants(t, r, "kafka-settings", Warn, "offsets.topic.replication.factor is 1", "__consumer_offsets")
}

func TestRedisVersions(t *testing.T) {
	for version, want := range map[string]bool{"6.2.0": true, "7.0.15": true, "6.0.16": false, "5.0": false, "10.0": true, "": false, "x": false} {
		if got := atLeastVersion(version, 6, 2); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}

// Ctrl-C must not leave the scratch topic behind.
func TestAnInterruptedExaminationTidiesUp(t *testing.T) {
	s := stack(t)
	ctx, interrupt := context.WithCancel(t.Context())
	k, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	deleted := make(chan struct{})
	k.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		// The check of rights, which may run beside the one of the fence, uses an unknown producer
		// id. The fence's has its scratch topic by then.
		if req.(*kmsg.InitProducerIDRequest).ProducerID != math.MaxInt64 {
			interrupt()
		}
		return nil, nil, false
	})
	k.ControlKey(int16(kmsg.DeleteTopics), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(deleted)
		return nil, nil, false
	})
	r, err := Run(ctx, Config{Kafka: brokers(k.ListenAddrs()...), Redis: client(t, s.Redis)}, func(Result) {})
	if err != nil {
		t.Fatal(err)
	}
	wants(t, r, "fencing", Fail, "context canceled")
	wants(t, r, "redis", Fail, "interrupted")
	select {
	case <-deleted:
	default:
		t.Error("the scratch topic was not deleted")
	}
}

// TestStalenessOutlastsATakeover: with both at 10 s, as they were delivered, the end of one
// aggregator made all enforcers stale.
func TestStalenessOutlastsATakeover(t *testing.T) {
	for _, c := range []struct {
		timeout, tolerated time.Duration
		want               Status
	}{{0, 0, OK}, {10 * time.Second, 10 * time.Second, Fail}, {10 * time.Second, 15 * time.Second, Warn}, {45 * time.Second, 0, Fail}, {6 * time.Second, 16 * time.Second, OK}} {
		e := &examination{kafkaSide: kafkaSide{cfg: Config{SessionTimeout: c.timeout, MaxStaleness: c.tolerated}.withDefaults()}}
		if r := e.checkStaleness(t.Context()).results; len(r) != 1 || r[0].Status != c.want {
			t.Errorf("%v and %v: %+v, want %s", c.timeout, c.tolerated, r, c.want)
		}
	}
	status, out, _ := run(t, nil, "--kafka", "127.0.0.1:1", "--no-write", "--timeout", "100ms", "--max-staleness", "5s", "--session-timeout", "6s")
	if status != 1 || !strings.Contains(out, "FAIL  staleness       --max-staleness 5s is not more than --session-timeout 6s") {
		t.Errorf("status %d, %s", status, out)
	}
}

// Each finding that is the doctor's has a check of the doctor's.
func TestTheDoctorTellsItsFindings(t *testing.T) {
	e := &examination{}
	for _, f := range health.Findings {
		if f.Check != "" && !slices.ContainsFunc(e.checks(), func(c check) bool { return c.name == f.Check }) {
			t.Errorf("%s is told by the check %s, which is not there", f.Name, f.Check)
		}
	}
}
