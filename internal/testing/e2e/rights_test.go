package e2e

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// With exactly the rights that `tallygate doctor --acls` lists, all programs do their work, and
// nothing that they ask for is refused.
func TestRightsThatAreEnough(t *testing.T) {
	servers.Nightly(t, "secrets")
	sasl := strings.Replace(servers.FreeAddr(t), "127.0.0.1", "127.0.0.2", 1)
	kafka := servers.StartKafka(t, map[string]string{
		"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
		"sasl.enabled.mechanisms":        "PLAIN",
		"listener.name.sasl.plain.sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required ` +
			`user_tallygate="secret" user_APPLICATION="secret" user_TOOL="secret";`,
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":           "User:ANONYMOUS", // the broker itself, and this test
	}, "KAFKA_LISTENERS=SASL://"+sasl, "KAFKA_ADVERTISED=SASL://"+sasl)
	store := servers.StartRedis(t)
	r := newBareRig(t, []string{kafka.Addr()}, store.Addr(), searches, 4)
	lines := rightsOf(t, sasl, r.prefix)
	allow(t, r.admin, lines)
	allowInRedis(t, r.redis, lines)

	kafkaAs := func(user string) []string {
		return []string{"--kafka", sasl, "--kafka-sasl", "plain", "--kafka-user", user, "--prefix", r.prefix}
	}
	t.Setenv("TALLYGATE_KAFKA_PASSWORD", "secret")
	t.Setenv("TALLYGATE_REDIS_PASSWORD", "PASSWORD")
	a := r.aggregator("a", append(kafkaAs("tallygate"), "--redis-user", "tallygate", "--replication", "1")...).Start().Ready()
	guard := newProcess(t, "enforcer", program(t, "enforcer"), "--redis", r.redisAddr, "--redis-user", "tallygate-enforcer", "--prefix", r.prefix).Start().Ready()
	application := plain.Mechanism{Username: "APPLICATION", Password: "secret"}
	emitter, err := emit.New(emit.Config{Brokers: []string{sasl}, Prefix: r.prefix, SASL: application})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		emitter.Emit(event.Event{UID: "42", API: "search.query"})
	}
	closeEmitter(t, emitter)
	eventually(t, "who searched too much is denied", func() bool { return !check(t, guard, "search.query", []string{"42"})[0].Allowed })

	eventually(t, "the enforcer is seen", func() bool {
		all, err := presence.List(t.Context(), r.redis, r.prefix)
		return err == nil && len(all) == 1 && all[0].Name != "" && !all[0].Stale
	})
	for _, command := range [][]string{{"blocks", "uid=42"}, {"audit", "uid=42"}, {"dead-letters"}} {
		out, err := exec.Command(program(t, "tallygate"), append(command, kafkaAs("TOOL")...)...).CombinedOutput()
		if err != nil || command[0] != "dead-letters" && !strings.Contains(string(out), "search") {
			t.Errorf("tallygate %s: %v\n%s", strings.Join(command, " "), err, out)
		}
	}
	deadLettersAreSent(t, r, a, guard, application, kafkaAs)
	for _, p := range []*Process{a, guard} {
		if status := p.Stop(); status != 0 {
			t.Errorf("%s exits with %d", p.name, status)
		}
		for line := range strings.Lines(p.Logs()) {
			if refused.MatchString(line) {
				t.Errorf("%s was refused something: %s", p.name, line)
			}
		}
	}
	denied, err := r.redis.Do(t.Context(), "acl", "log").Slice()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range denied {
		// Names that libraries give connections.
		if text := strings.ToLower(strings.Join(strings.Fields(redisText(entry)), " ")); !strings.Contains(text, "client|") {
			t.Errorf("Redis refused %s", text)
		}
	}
}

// deadLettersAreSent has an application emit what is no event, and the tool, whose principal may
// not write, have the aggregator send it fixed: its user is denied. Without the right to write the
// aggregator says which it lacks.
func deadLettersAreSent(t *testing.T, r *rig, a, guard *Process, application sasl.Mechanism, kafkaAs func(string) []string) {
	t.Helper()
	transport := &kafka.Transport{SASL: application}
	defer transport.CloseIdleConnections()
	w := kafka.Writer{Addr: kafka.TCP(kafkaAs("APPLICATION")[1]), Transport: transport, Topic: r.names.Events, RequiredAcks: kafka.RequireAll}
	defer w.Close()
	record := "[" + strings.Repeat(`{"uid":"43"},`, 9) + `{"uid":"43"}]`
	if err := w.WriteMessages(t.Context(), kafka.Message{Value: []byte(record)}); err != nil {
		t.Fatal(err)
	}
	var letters []byte
	eventually(t, "there is a dead letter", func() bool {
		var err error
		letters, err = exec.Command(program(t, "tallygate"), append([]string{"dead-letters", "--json"}, kafkaAs("TOOL")...)...).Output()
		return err == nil && len(letters) > 0
	})
	send := func() (string, error) {
		tool := exec.Command(program(t, "tallygate"), "dead-letters", "--send", "-", "--aggregator", a.addr)
		tool.Stdin = strings.NewReader(strings.ReplaceAll(string(letters), `{\"uid\"`, `{\"api\":\"search.query\",\"uid\"`))
		out, err := tool.CombinedOutput()
		return string(out), err
	}
	if out, err := send(); err != nil || !strings.HasPrefix(out, "10 events of 1 record sent") {
		t.Errorf("dead letters are sent again: %v\n%s", err, out)
	}
	eventually(t, "who searched too much by dead letters is denied", func() bool { return !check(t, guard, "search.query", []string{"43"})[0].Allowed })

	lacks := sarama.AclFilter{ResourceType: sarama.AclResourceTopic, ResourceName: &r.names.Events, ResourcePatternTypeFilter: sarama.AclPatternLiteral,
		Operation: sarama.AclOperationWrite, PermissionType: sarama.AclPermissionAllow}
	if _, err := r.admin.DeleteACL(lacks, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an aggregator that may not write says so", func() bool {
		out, err := send()
		return err != nil && strings.Contains(out, "aggregators need Write on "+r.names.Events+" for this, `tallygate doctor --acls` prints the command that allows it")
	})
}

var refused = regexp.MustCompile(`(?i)not authorized|authorization|noperm|no permissions`)

func redisText(entry any) string {
	var b strings.Builder
	switch e := entry.(type) {
	case []any:
		for _, v := range e {
			b.WriteString(redisText(v) + " ")
		}
	case map[any]any:
		for k, v := range e {
			b.WriteString(redisText(k) + " " + redisText(v) + " ")
		}
	case string:
		b.WriteString(e)
	}
	return b.String()
}

// rightsOf is what the tool says.
func rightsOf(t *testing.T, kafka, prefix string) []string {
	t.Helper()
	out, err := exec.Command(program(t, "tallygate"), "doctor", "--acls", "--kafka", kafka, "--prefix", prefix).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(out), "\n")
}

var (
	aclOf     = regexp.MustCompile(`^kafka-acls\.sh .*--allow-principal '([^']*)'(.*) --(topic|group|transactional-id|cluster) ?(\S*)( --resource-pattern-type prefixed)?$`)
	operation = regexp.MustCompile(`--operation (\S+)`)
)

// allow does what the lines of kafka-acls.sh do.
func allow(t *testing.T, admin sarama.ClusterAdmin, lines []string) {
	t.Helper()
	kinds := map[string]sarama.AclResourceType{"topic": sarama.AclResourceTopic, "group": sarama.AclResourceGroup,
		"transactional-id": sarama.AclResourceTransactionalID, "cluster": sarama.AclResourceCluster}
	n := 0
	for _, line := range lines {
		m := aclOf.FindStringSubmatch(line)
		if m == nil {
			if strings.HasPrefix(line, "kafka-acls") {
				t.Errorf("what does this line do? %s", line)
			}
			continue
		}
		resource := sarama.Resource{ResourceType: kinds[m[3]], ResourceName: m[4], ResourcePatternType: sarama.AclPatternLiteral}
		if m[3] == "cluster" {
			resource.ResourceName = "kafka-cluster"
		}
		if m[5] != "" {
			resource.ResourcePatternType = sarama.AclPatternPrefixed
		}
		for _, o := range operation.FindAllStringSubmatch(m[2], -1) {
			acl := sarama.Acl{Principal: m[1], Host: "*", PermissionType: sarama.AclPermissionAllow}
			if err := acl.Operation.UnmarshalText([]byte(o[1])); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if err := admin.CreateACLs([]*sarama.ResourceAcls{{Resource: resource, Acls: []*sarama.Acl{&acl}}}); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			n++
		}
	}
	if n < 20 {
		t.Fatalf("%d rights in\n%s", n, strings.Join(lines, "\n"))
	}
}

// allowInRedis runs the lines of redis-cli, but those for strict rules: here are none.
func allowInRedis(t *testing.T, c redis.UniversalClient, lines []string) {
	t.Helper()
	n := 0
	for _, line := range lines {
		if strings.HasPrefix(line, "# where rules are strict") {
			break
		}
		if !strings.HasPrefix(line, "ACL SETUSER") {
			continue
		}
		n++
		var args []any
		for _, word := range strings.Fields(line) {
			args = append(args, word)
		}
		if err := c.Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	if n != 3 {
		t.Fatalf("%d users", n)
	}
}
