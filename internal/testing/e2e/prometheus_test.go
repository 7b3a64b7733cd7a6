package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

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

// prometheus is a real one, and how often it looks.
type prometheus struct {
	t     *testing.T
	url   string
	every time.Duration
}

// startPrometheus starts one with a file of alerts. It scrapes and evaluates every so often; jobs are
// the targets by their job.
func startPrometheus(t *testing.T, alerts string, every time.Duration, jobs map[string][]string) *prometheus {
	t.Helper()
	path := servers.Program(t, "prometheus")
	rules, err := filepath.Abs(alerts)
	if err != nil {
		t.Fatal(err)
	}
	var scrapes []map[string]any
	for _, job := range slices.Sorted(maps.Keys(jobs)) {
		scrapes = append(scrapes, map[string]any{"job_name": job, "static_configs": []map[string]any{{"targets": jobs[job]}}})
	}
	config, err := json.Marshal(map[string]any{ // JSON is YAML
		"global":     map[string]any{"scrape_interval": every.String(), "scrape_timeout": every.String(), "evaluation_interval": every.String()},
		"rule_files": []string{rules}, "scrape_configs": scrapes,
	})
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "prometheus.yml"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &prometheus{t: t, every: every, url: "http://" + servers.FreeAddr(t)}
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
	if p.ask("query?query="+url.QueryEscape(query), &data) && len(data.Result) == 1 {
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

// has waits until an alert fires, and returns how long it took.
func (p *prometheus) has(name string) time.Duration {
	p.t.Helper()
	began := time.Now()
	p.await(name+" fires", func() bool { return p.firing()[name] })
	return time.Since(began)
}

// lacks waits until none of the alerts fires.
func (p *prometheus) lacks(names ...string) time.Duration {
	p.t.Helper()
	began := time.Now()
	for _, name := range names {
		p.await(name+" fires no more", func() bool { return !p.firing()[name] })
	}
	return time.Since(began)
}

// await waits for as long as alerts with these intervals may take.
func (p *prometheus) await(what string, ok func() bool) {
	p.t.Helper()
	for end := time.Now().Add(within + 200*p.every); !ok(); time.Sleep(p.every / 2) {
		if time.Now().After(end) {
			p.t.Fatalf("not seen: %s; now fire %v", what, slices.Sorted(maps.Keys(p.firing())))
		}
	}
}
