package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// chainRig is an installation with a console: two aggregators, two enforcers, users with rights of their own.
type chainRig struct {
	*rig
	kafka     *servers.KafkaProc
	store     *servers.RedisProc
	lines     []string // what `tallygate doctor --acls` says
	a, b      *Process
	guards    [2]*Process
	console   *Process
	goodRules []byte
}

// chainFault is a fault of a link of the chain.
type chainFault struct {
	name  string
	words []string // that the overview has then, and did not have before
	fault func(w *chainRig)
	heal  func(w *chainRig)
}

func chainFaults() []chainFault {
	return []chainFault{
		{"the broker is gone", []string{"Kafka does not answer"}, func(w *chainRig) { w.kafka.Kill() }, func(w *chainRig) { w.kafka.Start() }},
		{"Kafka's rights are revoked", []string{"Kafka refuses the aggregator"}, (*chainRig).revokeKafka, func(w *chainRig) { allow(w.t, w.admin, w.lines) }},
		{"one of two aggregators is gone", []string{"b does not answer"}, func(w *chainRig) { w.b.Kill() }, func(w *chainRig) { w.b.Start().Ready() }},
		{"all aggregators are gone", []string{"no aggregator answers"}, func(w *chainRig) { w.a.Kill(); w.b.Kill() }, func(w *chainRig) { w.a.Start(); w.b.Start(); w.a.Ready(); w.b.Ready() }},
		{"the console starts after all aggregators are gone", []string{"no aggregator answers", "nobody can be asked who you are", "Start them."}, (*chainRig).startUnled, (*chainRig).led},
		{"a rule file is rejected", []string{"The rule file of a is rejected", "a rule file needs"}, func(w *chainRig) { w.setRules("apiVersion: tallygate.dev/v1\nkindd: RuleSet\n") }, func(w *chainRig) { w.setRules(string(w.goodRules)) }},
		{"Redis is gone", []string{"Redis does not answer"}, func(w *chainRig) { w.store.Kill() }, func(w *chainRig) { w.store.Start(); allowInRedis(w.t, w.redis, w.lines) }},
		{"Redis' rights are revoked", []string{"Redis refuses the aggregator", "NOPERM"}, func(w *chainRig) { w.acl("nocommands") }, func(w *chainRig) { allowInRedis(w.t, w.redis, w.lines) }},
		{"an enforcer is killed", []string{"guard-1", "not heard of"}, func(w *chainRig) { w.guards[1].Kill() }, (*chainRig).enforcerAgain},
		{"an enforcer's clock is wrong", []string{"skewed", "its clock is 29 s slow"}, func(w *chainRig) { w.skewed(-30 * time.Second) }, func(w *chainRig) { w.skewedGone() }},
	}
}

// With the rights that the doctor lists, and no others. The chain had looked green with a dead link. Each link is broken in turn, and the page that a pager links to
// names it.
func TestTheOverviewNamesEachBrokenLink(t *testing.T) {
	servers.Nightly(t, "overview")
	w := watchChain(t)
	stop := testrun.Start(t, w.traffic)
	defer stop()
	eventually(t, "everything works", func() bool { return w.shows("Everything works") })
	w.replays()
	var report strings.Builder
	for _, l := range chainFaults() {
		if w.shows(l.words...) {
			t.Fatalf("%s: the overview says so before", l.name)
		}
		began := time.Now()
		l.fault(w)
		eventually(t, fmt.Sprintf("the overview says %q", l.words), func() bool { return w.shows(l.words...) })
		fmt.Fprintf(&report, "| %-32s | %4.1f s |\n", l.name, time.Since(began).Seconds())
		l.heal(w)
		eventually(t, "everything works again after "+l.name, func() bool { return w.shows("Everything works") })
	}
	t.Logf("from the fault until the overview named it:\n%s", &report)
}

func watchChain(t *testing.T) *chainRig {
	sasl := strings.Replace(servers.FreeAddr(t), "127.0.0.1", "127.0.0.2", 1)
	kafka := servers.StartKafka(t, map[string]string{
		"listener.security.protocol.map":            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
		"sasl.enabled.mechanisms":                   "PLAIN",
		"listener.name.sasl.plain.sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required user_tallygate="secret" user_CONSOLE="secret";`,
		"authorizer.class.name":                     "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":                               "User:ANONYMOUS", // the broker itself, and this test
	}, "KAFKA_LISTENERS=SASL://"+sasl, "KAFKA_ADVERTISED=SASL://"+sasl)
	store := servers.StartRedis(t)
	w := &chainRig{rig: newBareRig(t, []string{kafka.Addr()}, store.Addr(), searches, 4), kafka: kafka, store: store}
	w.lines = rightsOf(t, sasl, w.prefix)
	allow(t, w.admin, w.lines)
	allowInRedis(t, w.redis, w.lines)
	var err error
	if w.goodRules, err = os.ReadFile(w.rules); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TALLYGATE_KAFKA_PASSWORD", "secret")
	t.Setenv("TALLYGATE_REDIS_PASSWORD", "PASSWORD")
	member := func(name string) *Process {
		return w.aggregator(name, "--kafka", sasl, "--kafka-sasl", "plain", "--kafka-user", "tallygate", "--redis-user", "tallygate", "--replication", "1", "--instance-id", name).Start()
	}
	w.a, w.b = member("a").Ready(), member("b").Ready()
	for i := range w.guards {
		w.guards[i] = newProcess(t, fmt.Sprintf("guard-%d", i), program(t, "enforcer"), "--redis", w.redisAddr, "--redis-user", "tallygate-enforcer", "--prefix", w.prefix,
			"--instance-id", fmt.Sprintf("guard-%d", i)).Start().Ready()
	}
	w.console = newProcess(t, "console", program(t, "tallygate"), "--kafka", sasl, "--kafka-sasl", "plain", "--kafka-user", "CONSOLE", "--redis", w.redisAddr,
		"--redis-user", "tallygate-enforcer", "--prefix", w.prefix, "--aggregator", w.a.addr+","+w.b.addr)
	w.console.args = append([]string{"console"}, w.console.args...)
	w.console.Start().Ready()
	return w
}

// shows reports whether the overview has all of these words now.
func (w *chainRig) shows(words ...string) bool {
	status, page := get(w.console.url("/"))
	for _, word := range words {
		if status != http.StatusOK || !strings.Contains(string(page), word) {
			return false
		}
	}
	return true
}

// replays past events in the console: it may read them.
func (w *chainRig) replays() {
	form := url.Values{"action": {"replay"}, "span": {"1h"}, "rules": {string(w.goodRules)}}
	resp, err := client.PostForm(w.console.url("/try"), form)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	page, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(page), "Replay against version 1") {
		w.t.Errorf("a replay in the console: %d %.3000s %v", resp.StatusCode, page, err)
	}
}

// traffic sends events until ctx ends, whatever is broken.
func (w *chainRig) traffic(ctx context.Context) error {
	emitter, err := emit.New(emit.Config{Brokers: w.brokers, Prefix: w.prefix, OnDrop: func(emit.Drop) {}})
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = emitter.Close(end) // what is left is of no use
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
			emitter.Emit(event.Event{UID: fmt.Sprint(i % 100), API: "search.query"})
		case <-ctx.Done():
			return nil
		}
	}
}

// revokeKafka takes away that the aggregators may read and write the events' topic.
func (w *chainRig) revokeKafka() {
	aggregators := "User:tallygate"
	all := sarama.AclFilter{Principal: &aggregators, ResourceType: sarama.AclResourceTopic, ResourceName: &w.names.Events, ResourcePatternTypeFilter: sarama.AclPatternLiteral,
		Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAllow}
	if gone, err := w.admin.DeleteACL(all, false); err != nil || len(gone) == 0 {
		w.t.Fatalf("%d rights revoked: %v", len(gone), err)
	}
}

func (w *chainRig) acl(rule string) {
	if err := w.redis.Do(w.t.Context(), "acl", "setuser", "tallygate", rule).Err(); err != nil {
		w.t.Fatal(err)
	}
}

// startUnled starts the console while there is no aggregator, nor has been one since its start.
func (w *chainRig) startUnled() {
	w.a.Kill()
	w.b.Kill()
	w.console.Kill()
	w.console.Start().Ready()
}

// led starts the aggregators. Meanwhile nothing but the lights is for whoever comes.
func (w *chainRig) led() {
	for _, path := range []string{"/blocked", "/key", "/audit", "/rules", "/exemptions", "/v1/status"} {
		if status, page := get(w.console.url(path)); status != http.StatusServiceUnavailable {
			w.t.Errorf("%s without an aggregator: %d %.500s", path, status, page)
		}
	}
	w.a.Start()
	w.b.Start()
	w.a.Ready()
	w.b.Ready()
}

// setRules writes the rule file, and tells both aggregators at once.
func (w *chainRig) setRules(text string) {
	if err := os.WriteFile(w.rules, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.a.Signal(syscall.SIGHUP)
	w.b.Signal(syscall.SIGHUP)
}

// enforcerAgain starts the enforcer, and takes away the beat of the one that was killed, as time would.
func (w *chainRig) enforcerAgain() {
	all, err := presence.List(w.t.Context(), w.redis, w.prefix)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, b := range all {
		if b.Name == w.guards[1].name {
			if err := presence.Remove(w.t.Context(), w.redis, w.prefix, b.ID); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	w.guards[1].Start().Ready()
}

const skewedID = "skewed"

// skewed announces an enforcer whose clock is wrong.
func (w *chainRig) skewed(by time.Duration) {
	b := presence.Beat{ID: skewedID, Kind: presence.Go, Name: "skewed", At: time.Now().Add(by).Add(time.Second / 2), Started: time.Now(), Enabled: true}
	if err := presence.Write(w.t.Context(), w.redis, w.prefix, b); err != nil {
		w.t.Fatal(err)
	}
}

func (w *chainRig) skewedGone() {
	if err := presence.Remove(w.t.Context(), w.redis, w.prefix, skewedID); err != nil {
		w.t.Fatal(err)
	}
}
