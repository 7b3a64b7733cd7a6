package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/servers"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/pipeline/event"
)

// What an operator is told when Kafka gives nothing, when Redis refuses an enforcer, when the rule
// file is broken and when no instance is left: a Prometheus with deploy/alerts.yaml, whose waits
// are short here, scrapes the programs and has the documented alerts. What passes is counted.
func TestPrometheusHasTheAlerts(t *testing.T) {
	path := servers.Program(t, "prometheus")
	kafka := servers.StartKafka(t, map[string]string{
		"authorizer.class.name":          "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"allow.everyone.if.no.acl.found": "true",
	})
	store := servers.StartRedis(t)
	r := newRigOn(t, []string{kafka.Addr()}, store.Addr(), searches)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("right"), 0o600); err != nil {
		t.Fatal(err)
	}
	password := func(text string) {
		t.Helper()
		if err := r.redis.Do(t.Context(), "ACL", "SETUSER", "enforcer", "on", "resetpass", ">"+text, "~*", "&*", "+@all").Err(); err != nil {
			t.Fatal(err)
		}
		_ = r.redis.Do(t.Context(), "CLIENT", "KILL", "USER", "enforcer").Err()
	}
	password("right")
	a := r.aggregator("a", "--session-timeout", "30s").Start().Ready()
	guard := newProcess(t, "enforcer", program(t, "enforcer"), "--redis", r.redisAddr, "--redis-user", "enforcer", "--redis-password-file", file,
		"--prefix", r.prefix).Start().Ready()
	emitter, err := emit.New(emit.Config{Brokers: r.brokers, Prefix: r.prefix})
	if err != nil {
		t.Fatal(err)
	}
	hits := func() {
		for i := range 40 {
			emitter.Emit(event.Event{UID: fmt.Sprint("u", i), API: "search.query"})
		}
	}
	p := startPrometheus(t, path, a.metrics, guard.metrics)
	hits()
	eventually(t, "both are scraped, and all is well", func() bool { return p.number("sum(up)") == 2 && len(p.firing()) == 0 })

	allow := r.onlyDescribed(r.names.Events)
	hits()
	p.has("TallygateKafkaRefuses", "TallygateCountingStopped")
	allow(sarama.AclOperationRead)
	p.lacks("TallygateCountingStopped")
	r.caughtUp()

	stopped := kafka.Pid()
	t.Cleanup(func() { _ = syscall.Kill(stopped, syscall.SIGCONT) })
	if err := syscall.Kill(stopped, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.has("TallygateNothingRead", "TallygateCountingStopped")
	eventually(t, "it is not ready", func() bool { status, _ := get(a.url("/readyz")); return status == http.StatusServiceUnavailable })
	if err := syscall.Kill(stopped, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	hits()
	p.lacks("TallygateNothingRead", "TallygateCountingStopped")
	r.caughtUp()
	closeEmitter(t, emitter)

	password("another")
	p.has("TallygateEnforcerRefused", "TallygateEnforcerBehind")
	eventually(t, "the enforcer says it, and stays ready", func() bool {
		status, body := get(guard.url("/readyz"))
		return status == http.StatusOK && strings.Contains(string(body), "but Redis has refused us")
	})

	if status := a.Stop(); status != 0 {
		t.Errorf("it exits with %d", status)
	}
	if err := os.WriteFile(r.rules, []byte("rules: mistaken"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.Start()
	p.has("TallygateRulesBroken")
	p.lacks("TallygateNoAggregator") // it counts by the rules that the group has
	a.Kill()
	p.has("TallygateNoAggregator")
}

// onlyDescribed takes from everybody the right to read a topic, and returns what gives one back.
func (r *rig) onlyDescribed(topic string) (allow func(sarama.AclOperation)) {
	r.t.Helper()
	resource := sarama.Resource{ResourceType: sarama.AclResourceTopic, ResourceName: topic, ResourcePatternType: sarama.AclPatternLiteral}
	allow = func(op sarama.AclOperation) {
		r.t.Helper()
		acl := &sarama.Acl{Principal: "User:ANONYMOUS", Host: "*", Operation: op, PermissionType: sarama.AclPermissionAllow}
		if err := r.admin.CreateACLs([]*sarama.ResourceAcls{{Resource: resource, Acls: []*sarama.Acl{acl}}}); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, op := range []sarama.AclOperation{sarama.AclOperationDescribe, sarama.AclOperationWrite, sarama.AclOperationDescribeConfigs} {
		allow(op)
	}
	return allow
}

// prometheus is one that scrapes and evaluates twice a second.
type prometheus struct {
	t   *testing.T
	url string
}

var (
	waits  = regexp.MustCompile(`(?m)^( +for:) .*$`)
	limits = regexp.MustCompile(`(_seconds\)+) > [0-9]+`)
)

// startPrometheus starts one with deploy/alerts.yaml, in which nothing waits and what may be late
// is so after 4 s.
func startPrometheus(t *testing.T, path string, targets ...string) *prometheus {
	t.Helper()
	rules, err := os.ReadFile("../../deploy/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if w, l := len(waits.FindAll(rules, -1)), len(limits.FindAll(rules, -1)); w < 4 || l != 4 {
		t.Fatalf("the alerts have %d waits and %d limits in seconds", w, l)
	}
	rules = limits.ReplaceAll(waits.ReplaceAll(rules, []byte("$1 0s")), []byte("$1 > 4"))
	folder := t.TempDir()
	list, _ := json.Marshal(targets)
	config := fmt.Sprintf("global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}\nrule_files: [alerts.yaml]\n"+
		"scrape_configs:\n  - {job_name: tallygate, static_configs: [{targets: %s}]}\n", list)
	for name, text := range map[string][]byte{"alerts.yaml": rules, "prometheus.yml": []byte(config)} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := &prometheus{t: t, url: "http://" + servers.FreeAddr(t)}
	log := &logBuffer{}
	cmd := exec.Command(path, "--config.file", filepath.Join(folder, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(folder, "data"),
		"--web.listen-address", strings.TrimPrefix(p.url, "http://"), "--log.level", "warn")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the end of Prometheus' log:\n%s", log.tail(20))
		}
	})
	return p
}

// ask returns the data of an answer of the API; ok is false while there is none.
func (p *prometheus) ask(path string, data any) (ok bool) {
	status, body := get(p.url + "/api/v1/" + path)
	var answer struct{ Data json.RawMessage }
	return status == http.StatusOK && json.Unmarshal(body, &answer) == nil && json.Unmarshal(answer.Data, data) == nil
}

// number is a query's one value; 0 when there is none.
func (p *prometheus) number(query string) (n float64) {
	var data struct{ Result []struct{ Value [2]any } }
	if p.ask("query?query="+query, &data) && len(data.Result) == 1 {
		_, _ = fmt.Sscan(fmt.Sprint(data.Result[0].Value[1]), &n)
	}
	return n
}

// firing are the alerts that fire, by name.
func (p *prometheus) firing() map[string]bool {
	var data struct {
		Alerts []struct {
			State  string
			Labels struct{ Alertname string }
		}
	}
	names := map[string]bool{}
	eventually(p.t, "Prometheus tells its alerts", func() bool { return p.ask("alerts", &data) })
	for _, a := range data.Alerts {
		if a.State == "firing" {
			names[a.Labels.Alertname] = true
		}
	}
	return names
}

func (p *prometheus) has(names ...string) {
	p.t.Helper()
	for _, name := range names {
		began := time.Now()
		eventually(p.t, name+" fires", func() bool { return p.firing()[name] })
		p.t.Logf("%s fired after %v", name, time.Since(began).Round(time.Millisecond))
	}
}

func (p *prometheus) lacks(names ...string) {
	p.t.Helper()
	for _, name := range names {
		began := time.Now()
		eventually(p.t, name+" fires no more", func() bool { return !p.firing()[name] })
		p.t.Logf("%s fired no more after %v", name, time.Since(began).Round(time.Millisecond))
	}
}
