package ops_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/ops"
)

// settings are options by name, as a status has them.
func settings(o *ops.Options) map[string]api.Setting {
	all := map[string]api.Setting{}
	for _, s := range o.Settings() {
		all[s.Name] = s
	}
	return all
}

// A status tells what each option is and where that is from.
func TestSettingsTellWhereTheyAreFrom(t *testing.T) {
	file := write(t, "c.yaml", "prefix: shop\nlisten: file:1\nmax_staleness: 3s\n")
	o := ops.NewOptions("test", "", io.Discard, env{"TALLYGATE_LISTEN": "environment:1", "TALLYGATE_REDIS": "a:1,b:2"}.get)
	o.String("prefix", "tallygate", "")
	o.String("listen", "default:1", "")
	o.List("redis", nil, "")
	o.Duration("max-staleness", time.Second, "")
	o.Int("shards", 7, "")
	o.Func("trusted-proxies", "", func(string) error { return nil })
	if err := o.Parse([]string{"--config", file, "--trusted-proxies", "10.0.0.0/8"}); err != nil {
		t.Fatal(err)
	}
	got := settings(o)
	for name, want := range map[string]api.Setting{
		"prefix": {Value: "shop", From: "file"}, "listen": {Value: "environment:1", From: "environment"}, "redis": {Value: "a:1,b:2", From: "environment"},
		"max-staleness": {Value: "3s", From: "file"}, "shards": {Value: "7", From: "default"},
		"trusted-proxies": {Value: "10.0.0.0/8", From: "flag"}, "config": {Value: file, From: "flag"},
	} {
		if want.Name = name; got[name] != want {
			t.Errorf("%+v, want %+v", got[name], want)
		}
	}
}

// No secret is told, wherever somebody wrote it.
func TestSettingsTellNoSecret(t *testing.T) {
	const hush = "hu/sh:with,all@of it"
	file := write(t, "secret", hush+"\n")
	o := ops.NewOptions("test", "", io.Discard, env{"TALLYGATE_KAFKA_PASSWORD": hush, "TALLYGATE_API_TOKEN": hush}.get)
	o.String("kafka-password-file", "", "")
	for _, name := range []string{"api-token", "smtp-password", "signing-secret", "webhook", "url", "list", "table"} {
		o.String(name, "", "")
	}
	o.Hide("webhook")
	if err := o.Parse([]string{"--smtp-password", hush, "--signing-secret", hush, "--webhook", "https://hooks.example/" + hush,
		"--url", "redis://user:" + hush + "@r:6379", "--list", "a:1,user:" + hush + "@b:2", "--table", "x=https://" + hush + "@c"}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", file} {
		if secret, err := o.Secret("TALLYGATE_KAFKA_PASSWORD", path); err != nil || secret != hush {
			t.Fatal(secret, err)
		}
		want := map[string]string{"": "environment", file: "file"}[path]
		if s := settings(o)["kafka-password"]; s.Value != "•••" || s.From != want {
			t.Errorf("%+v", s)
		}
	}
	if _, err := o.Secret("TALLYGATE_UNSET", ""); err != nil || settings(o)["unset"].Name != "" {
		t.Error("a secret that is not set is told of", err)
	}
	text, err := json.Marshal(o.Settings())
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"hu", "sh:", "with", "all", "of it"} {
		if strings.Contains(strings.ReplaceAll(string(text), file, ""), part) {
			t.Errorf("%q is in %s", part, text)
		}
	}
	if got := settings(o)["url"].Value; got != "redis://•••@r:6379" {
		t.Errorf("%s", got)
	}
	if got := settings(o)["list"].Value; got != "•••@b:2" {
		t.Errorf("%s", got)
	}
}

// A log remembers warnings and errors, also those that it does not write, by their messages; and of a line no
// value but why.
func TestALogRemembersItsErrors(t *testing.T) {
	var out strings.Builder
	log, err := ops.NewLogger(&out, "error", "json")
	if err != nil {
		t.Fatal(err)
	}
	other := log.With("uid", "4711").WithGroup("g")
	log.Info("information")
	for i := range 3 {
		other.Warn("a warning", "key", "uid=4711", "error", fmt.Errorf("number %d", i))
	}
	log.Error("an error", "reason", "so it is")
	log.Error("a warning", "advice", "do it")
	all := ops.Remembered(other)
	if len(all) != 3 {
		t.Fatalf("%+v", all)
	}
	for _, line := range all {
		want := map[string]api.LoggedError{
			"warn a warning":  {Level: "warn", Message: "a warning", Error: "number 2", Count: 3},
			"error an error":  {Level: "error", Message: "an error", Error: "so it is", Count: 1},
			"error a warning": {Level: "error", Message: "a warning", Error: "do it", Count: 1},
		}[line.Level+" "+line.Message]
		if line.First.IsZero() || line.Last.Before(line.First) {
			t.Errorf("%+v", line)
		}
		if want.First, want.Last = line.First, line.Last; line != want {
			t.Errorf("%+v, want %+v", line, want)
		}
	}
	if strings.Contains(out.String(), "number") || !strings.Contains(out.String(), "an error") {
		t.Errorf("the log of errors has %s", &out)
	}
	for i := range 60 {
		log.Error(fmt.Sprintf("message %d", i))
	}
	if all = ops.Remembered(log); len(all) != 50 || all[0].Message < "message 1" {
		t.Errorf("%d: %+v", len(all), all[0])
	}
	if ops.Remembered(nil) == nil || len(ops.Remembered(slog.New(slog.DiscardHandler))) != 0 {
		t.Error("another log remembers")
	}
}

// A status has the metrics that are asked for, and nothing else is taken.
func TestStatusOverHTTP(t *testing.T) {
	reg := prometheus.NewRegistry()
	events := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tallygate_rule_matches_total", Help: "h"}, []string{"rule"})
	took := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tallygate_took_seconds", Help: "h", Buckets: []float64{1, 2}})
	odd := prometheus.NewGauge(prometheus.GaugeOpts{Name: "tallygate_odd", Help: "h"})
	reg.MustRegister(events, took, odd)
	events.WithLabelValues("a").Add(3)
	took.Observe(1.5)
	odd.Set(func() float64 { zero := 0.0; return zero / zero }())
	p := ops.NewReporter("test")
	p.Address, p.Registry, p.Ready, p.But = "here:1", reg, func() error { return nil }, func() error { return errors.New("something") }
	p.Fill = func(s *api.Status) { s.Enforcer = &api.EnforcerStatus{Entries: 1} }
	ask := func(query string, want int) (s api.Status) {
		t.Helper()
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/status"+query, nil))
		if w.Code != want {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		} else if want == 200 {
			if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil {
				t.Error(err)
			}
		}
		return s
	}
	s := ask("", 200)
	if !s.Ready || s.Why != "something" || s.Instance != "here:1" || s.Metrics != nil || s.Enforcer == nil || s.Started.IsZero() || s.Uptime < 0 {
		t.Errorf("%+v", s)
	}
	s = ask("?metrics=tallygate_rule_,tallygate_took,tallygate_odd,nothing", 200)
	if m := s.Metrics["tallygate_rule_matches_total"]; len(m) != 1 || m[0].Value != 3 || m[0].Labels["rule"] != "a" {
		t.Errorf("%+v", s.Metrics)
	}
	if m := s.Metrics["tallygate_took_seconds"]; len(m) != 1 || m[0].Sum != 1.5 || m[0].Count != 1 || len(m[0].Buckets) != 2 || m[0].Buckets[1].Count != 1 {
		t.Errorf("%+v", s.Metrics)
	}
	if m, ok := s.Metrics["tallygate_odd"]; !ok || len(m) != 0 || len(s.Metrics) != 3 {
		t.Errorf("%+v", s.Metrics)
	}
	p.Ready = func() error { return errors.New("not yet") }
	if s = ask("", 200); s.Ready || s.Why != "not yet" {
		t.Errorf("%+v", s)
	}
	for _, query := range []string{"?metrics=", "?metrics=a,,b", "?metrics=a-b", "?metrics=a&metrics=b", "?x=1", "?metrics=" + strings.Repeat("a,", 60) + "a", "?metrics=" + strings.Repeat("a", 200)} {
		ask(query, 400)
	}
}
