package doctor

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/blocklist/publish"
)

// install creates topics under a prefix of the test's own, on a real Kafka.
func install(t *testing.T) Config {
	t.Helper()
	cfg := Config{Kafka: brokers(servers.Kafka(t)...), Redis: client(t, servers.Redis(t)), Prefix: servers.Name(t)}
	servers.DropTopics(t, cfg.Kafka.Brokers, cfg.Prefix)
	ensure(t, cfg.Kafka.Brokers, topics.Config{Prefix: cfg.Prefix, Partitions: 2})
	t.Cleanup(func() {
		client(t, servers.Redis(t)).Del(context.Background(), "{"+cfg.Prefix+":0}:verdicts", "{"+cfg.Prefix+":0}:expiry", "{"+cfg.Prefix+":0}:changes", "{"+cfg.Prefix+":0}:strict")
	})
	return cfg
}

func TestRealServers(t *testing.T) {
	cfg := install(t)
	r := examine(t, cfg)
	if !r.Well {
		t.Error("something failed")
	}
	for _, name := range []string{"kafka", "kafka-version", "kafka-settings", "topics", "acls", "fencing", "redis", "redis-version", "redis-role", "redis-policy", "redis-rights", "clocks"} {
		wants(t, r, name, OK)
	}
	wants(t, r, "clocks", OK, "broker 1", "Redis")
	wants(t, r, "redis-rights", OK, "ACL DRYRUN")
	wants(t, r, "group", Warn, "no aggregator has run")
	wants(t, r, "blocklist", Warn, "the blocklist was never written")

	admin, err := sarama.NewClusterAdmin(cfg.Kafka.Brokers, sarama.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	testrun.Eventually(t, "the scratch topic is gone", func() bool {
		all, err := admin.ListTopics()
		return err == nil && len(all) > 0 && !hasScratch(all, cfg.Prefix)
	})
}

func hasScratch(all map[string]sarama.TopicDetail, prefix string) bool {
	for name := range all {
		if len(name) > len(prefix)+8 && name[:len(prefix)+8] == prefix+".doctor-" {
			return true
		}
	}
	return false
}

// The publisher writes what the doctor reads: here both are real.
func TestTheBlocklist(t *testing.T) {
	cfg := install(t)
	pub, err := publish.New(publish.Config{
		Redis: cfg.Redis, Kafka: cfg.Kafka.Brokers, Topic: cfg.Prefix + ".verdicts", Partitions: 2, Prefix: cfg.Prefix,
		PublishOnly: true, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	verdict := `{"rule":"r","key":{"uid":"42"},"state":"block","mode":"enforce","action":"block","apis":["*"],"count":2,"limit":1,"since":"2026-01-01T00:00:00Z","until":"` + until + `","seq":1}`
	produce(t, cfg, verdict)
	wants(t, examine(t, cfg), "blocklist", Fail, "the blocklist was never written, but there are verdicts")

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- pub.Run(ctx) }()
	testrun.Eventually(t, "the blocklist is in step", func() bool {
		e := &examination{kafkaSide: kafkaSide{cfg: cfg.withDefaults(), names: topics.NamesOf(cfg.Prefix)}}
		return e.checkBlocklist(t.Context()).results[0].Status == OK
	})
	wants(t, examine(t, cfg), "blocklist", OK, "1 verdict, in sync", "last heartbeat")
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	// With a strict rule owners write their own records all the time: Redis lacks no verdict.
	for range 3 {
		produceAs(t, cfg, "\x00grants", "{}")
	}
	wants(t, examine(t, cfg), "blocklist", OK, "1 verdict, in sync")
	produce(t, cfg, verdict)
	wants(t, examine(t, cfg), "blocklist", Warn, "not in Redis yet, of partition 0 (at 1 of 5)")

	cfg.Redis.HSet(t.Context(), "{"+cfg.Prefix+":0}:verdicts", "\x00reached:0", 1000, "\x00beat", time.Now().Add(-time.Minute).UnixMilli())
	r := examine(t, cfg)
	wants(t, r, "blocklist", Fail, "beyond the end", "0 (at 1000 of 5)", "DEL {"+cfg.Prefix+":0}:verdicts")
	wants(t, r, "blocklist", Fail, "nobody has written the blocklist for 1 min")
}

func produce(t *testing.T, cfg Config, value string) {
	t.Helper()
	produceAs(t, cfg, "uid=42|r", value)
}

func produceAs(t *testing.T, cfg Config, key, value string) {
	t.Helper()
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	w := &kafka.Writer{
		Addr: kafka.TCP(cfg.Kafka.Brokers...), Topic: cfg.Prefix + ".verdicts", RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond,
		Transport: transport, Balancer: kafka.BalancerFunc(func(kafka.Message, ...int) int { return 0 }),
	}
	if err := w.WriteMessages(t.Context(), kafka.Message{Key: []byte(key), Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// member is a consumer group's, in place of an aggregator.
type member struct{ commit int64 }

func (member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (m member) Setup(s sarama.ConsumerGroupSession) error {
	for topic, partitions := range s.Claims() {
		for _, p := range partitions {
			s.MarkOffset(topic, p, m.commit, "")
		}
	}
	s.Commit()
	return nil
}

func (member) ConsumeClaim(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim) error {
	<-s.Context().Done()
	return nil
}

func TestTheGroup(t *testing.T) {
	cfg := install(t)
	conf := sarama.NewConfig()
	conf.Version = sarama.V2_8_0_0
	g, err := sarama.NewConsumerGroup(cfg.Kafka.Brokers, cfg.Prefix, conf)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- g.Consume(ctx, []string{cfg.Prefix + ".events"}, member{}) }()
	testrun.Eventually(t, "the member has its partitions", func() bool {
		r, err := Run(t.Context(), Config{Kafka: cfg.Kafka, Prefix: cfg.Prefix, NoWrite: true}, func(Result) {})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range r.Results {
			if x.Name == "group" {
				return x.Status == OK && x.Detail == "1 member with all 2 partitions, no lag"
			}
		}
		return false
	})
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestHowLongEventsWait(t *testing.T) {
	l := &lag{partitions: 3, total: 30, behind: map[int32]behind{0: {10, 0}, 2: {20, health.Late.Bad}}}
	if got := l.String(); got != "lag 30 events, most in partition 2: 20" {
		t.Error(got)
	}
	c, err := clusterOf("events", &sarama.GroupDescription{}, l)
	if err != nil || len(c.Unowned) != 0 {
		t.Errorf("without members none of them lacks a partition: %+v, %v", c, err)
	}
	for waited, want := range map[time.Duration]string{0: "", health.Late.Bad: "counting is more than 30 s behind in partition 2, by 20 records"} {
		o := Config{Kafka: brokers()}.look()
		o.Cluster.Took(health.Cluster{Members: []api.Status{{Instance: "a", Ready: true, Aggregator: &api.AggregatorStatus{
			Partitions: []api.PartitionStatus{{Partition: 2, State: "open", Lag: 20, LagSeconds: waited.Seconds()}}}}}}, nil, o.Now)
		got := ""
		for _, r := range judged("group", o) {
			got += r.Detail
		}
		if got != want {
			t.Errorf("%v late: %q, want %q", waited, got, want)
		}
	}
}

func TestABrokerWithWrongSettingsAndRights(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a broker")
	}
	k := servers.StartKafka(t, map[string]string{
		"producer.id.expiration.ms": "3600000", "transactional.id.expiration.ms": "3600000",
		"authorizer.class.name":          "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"allow.everyone.if.no.acl.found": "true",
	})
	ensure(t, []string{k.Addr()}, topics.Config{Partitions: 1})
	r := examine(t, Config{Kafka: brokers(k.Addr())})
	wants(t, r, "kafka-settings", Fail, "producer.id.expiration.ms is 1h0m0s")
	wants(t, r, "kafka-settings", Fail, "transactional.id.expiration.ms is 1h0m0s")
	wants(t, r, "acls", OK)
	wants(t, r, "fencing", OK)

	deny(t, k.Addr())
	testrun.Eventually(t, "the rights are taken away", func() bool {
		r, err := Run(t.Context(), Config{Kafka: brokers(k.Addr()), NoWrite: true}, func(Result) {})
		return err == nil && !r.Well && failed(r, "acls") == 3
	})
	r = examine(t, Config{Kafka: brokers(k.Addr())})
	wants(t, r, "acls", Fail, "may not Write the topic tallygate-table", "--allow-principal 'User:NAME' --operation Write --topic tallygate-table")
	wants(t, r, "acls", Fail, "may not Read the group tallygate")
	wants(t, r, "acls", Warn, "may not Write the topic tallygate.events", "--allow-principal 'User:NAME' --operation Write --topic tallygate.events")
	wants(t, r, "kafka-settings", Warn, "no right to read", "--operation DescribeConfigs --cluster")
	wants(t, r, "acls", Fail, "may not Write the transactional ids tallygate-*")
	wants(t, r, "fencing", Warn, "not tested", "--operation Write --transactional-id tallygate-")
}

func failed(r *Report, name string) (n int) {
	for _, x := range r.Results {
		if x.Name == name && x.Status == Fail {
			n++
		}
	}
	return n
}

// deny takes the rights to write states, to send dead letters again, to be in the group and to own
// partitions.
func deny(t *testing.T, addr string) {
	t.Helper()
	conf := sarama.NewConfig()
	conf.Version = sarama.V2_8_0_0
	admin, err := sarama.NewClusterAdmin([]string{addr}, conf)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	acl := func(kind sarama.AclResourceType, name string, pattern sarama.AclResourcePatternType, how sarama.AclPermissionType, op sarama.AclOperation) {
		err := admin.CreateACLs([]*sarama.ResourceAcls{{
			Resource: sarama.Resource{ResourceType: kind, ResourceName: name, ResourcePatternType: pattern},
			Acls:     []*sarama.Acl{{Principal: "User:ANONYMOUS", Host: "*", Operation: op, PermissionType: how}},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, topic := range []string{"tallygate-table", "tallygate.events"} {
		acl(sarama.AclResourceTopic, topic, sarama.AclPatternLiteral, sarama.AclPermissionAllow, sarama.AclOperationAll)
		acl(sarama.AclResourceTopic, topic, sarama.AclPatternLiteral, sarama.AclPermissionDeny, sarama.AclOperationWrite)
	}
	acl(sarama.AclResourceGroup, "tallygate", sarama.AclPatternLiteral, sarama.AclPermissionAllow, sarama.AclOperationDescribe)
	acl(sarama.AclResourceCluster, "kafka-cluster", sarama.AclPatternLiteral, sarama.AclPermissionAllow, sarama.AclOperationAll)
	acl(sarama.AclResourceCluster, "kafka-cluster", sarama.AclPatternLiteral, sarama.AclPermissionDeny, sarama.AclOperationDescribeConfigs)
	acl(sarama.AclResourceTransactionalID, "tallygate-", sarama.AclPatternPrefixed, sarama.AclPermissionAllow, sarama.AclOperationDescribe)
}

func TestARedisThatEvicts(t *testing.T) {
	addr := servers.StartRedis(t, "--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb").Addr()
	r := examine(t, Config{Kafka: brokers("127.0.0.1:1"), Redis: client(t, addr)})
	wants(t, r, "redis-policy", Fail, "maxmemory-policy is allkeys-lru", "CONFIG SET maxmemory-policy noeviction")
	wants(t, r, "redis-role", OK)
}

func TestAReplica(t *testing.T) {
	primary := servers.StartRedis(t).Addr()
	replica := servers.StartRedis(t, "--replicaof", primary[:len("127.0.0.1")], primary[len("127.0.0.1:"):]).Addr()
	r := examine(t, Config{Kafka: brokers("127.0.0.1:1"), Redis: client(t, replica)})
	wants(t, r, "redis-role", Fail, "is a replica", "--redis "+primary)
}

func TestAUserOfRedisWithFewRights(t *testing.T) {
	addr := servers.StartRedis(t).Addr()
	root := client(t, addr)
	set := func(rules ...any) {
		t.Helper()
		if err := root.Do(t.Context(), append([]any{"acl", "setuser", "tg", "reset", "on", ">secret", "+ping", "+hello"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	run := func(more ...string) *Report {
		args := append([]string{"--kafka", "127.0.0.1:1", "--redis", addr, "--redis-user", "tg"}, more...)
		status, out, errs := runJSON(t, map[string]string{"TALLYGATE_REDIS_PASSWORD": "secret"}, args...)
		if status != 1 || errs != "" {
			t.Errorf("exit status %d, %s", status, errs)
		}
		return out
	}
	set("~{tallygate:*", "+@all", "-@dangerous", "-eval", "-xread") // no INFO, CONFIG, ACL
	r := run()
	wants(t, r, "redis-version", Skipped)
	wants(t, r, "redis-role", Skipped)
	wants(t, r, "redis-policy", Warn, "no right to read")
	wants(t, r, "redis-rights", Fail, "may not use xread, eval", "+hset")

	set("~{tallygate:*", "+@all", "-@dangerous", "+info")
	wants(t, run(), "redis-rights", OK, "scratch keys")
	if keys := root.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("keys left: %q", keys)
	}
	// What only strict rules need is looked at where there are some.
	strict := writeFile(t, strings.Replace(goodRules, "  rules:\n", "  rules:\n    - {name: sms, match: {api: x}, limit: 5, per: 1h, strict: true}\n", 1))
	for _, how := range []any{"-@dangerous", "+@dangerous"} { // tried, and queried
		set("~{tallygate:*", "+@all", how, "+info", "-mset", "-script|load")
		wants(t, run(), "redis-rights", OK)
		wants(t, run("--rules", strict), "redis-rights", Fail, "may not use script|load, mset on", "+script|load", "+mset")
		set("~{tallygate:*", "+@all", how, "+info")
		wants(t, run("--rules", strict), "redis-rights", OK, "also those of strict rules")
	}
	if keys := root.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("keys left: %q", keys)
	}
	set("~other:*", "+@all")
	wants(t, run(), "redis-rights", Fail, "hset", "~{tallygate:*")
	set("~{tallygate:*", "+@all", "-ping") // an aggregator's user, which needs no PING
	wants(t, run(), "redis", Warn, "reachable", "--redis-user tallygate-doctor")
	wants(t, run(), "redis-version", OK)
}

// Publishers write the number of shards; one who was told another number sees a part of it.
func TestABlocklistOfAnotherNumberOfShards(t *testing.T) {
	cfg := install(t)
	cfg.Redis.HSet(t.Context(), "{"+cfg.Prefix+":0}:verdicts", "\x00epoch", 1, "\x00n", 1, "\x00stamp", "x", "\x00beat", time.Now().UnixMilli(), "\x00shards", 2)
	wants(t, examine(t, cfg), "blocklist", Fail, "the blocklist has 2 shards, and --shards is 1", "--shards 2")
}

// A shard's clock stays ahead for a while when Redis' clock was.
func TestClocksOfStrictLimits(t *testing.T) {
	cfg := install(t)
	cfg.Rules = writeFile(t, strings.Replace(goodRules, "  rules:\n", "  rules:\n    - {name: sms, match: {api: x}, limit: 5, per: 1h, strict: true}\n", 1))
	wants(t, examine(t, cfg), "strict-clocks", OK)
	now := time.Now().UnixMicro()
	write := "return redis.call('SET', KEYS[1], cmsgpack.pack(tonumber(ARGV[1]), tonumber(ARGV[2]), 'run', 'epoch', 0))"
	if err := cfg.Redis.Eval(t.Context(), write, []string{"{" + cfg.Prefix + ":0}:strict"}, now+45_000_000, now).Err(); err != nil {
		t.Fatal(err)
	}
	wants(t, examine(t, cfg), "strict-clocks", Warn, "shard 0", "s ahead")
}
