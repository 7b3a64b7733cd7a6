package e2e

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

const (
	recordedEvery = 5 * time.Second
	recordedIn    = "../../../deploy/testdata/faults"
)

// recording is a file of deploy/testdata/faults.
type recording struct {
	Fault    string                   `yaml:"fault"`
	Step     string                   `yaml:"step"`
	Struck   time.Duration            `yaml:"struck"`
	Mended   time.Duration            `yaml:"mended"`
	End      time.Duration            `yaml:"end"`
	Fires    map[string]time.Duration `yaml:"fires"`
	Measured map[string]measured      `yaml:"measured"`
	Series   []recordedSeries         `yaml:"series"`
}

// measured is what a real Prometheus said: when an alert fired after the fault, and was over after the
// runbook's step.
type measured struct {
	Fired time.Duration `yaml:"fired"`
	Over  time.Duration `yaml:"over,omitempty"`
}

type recordedSeries struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

// record plays a fault with the real waits, and writes down what Prometheus saw.
func record(t *testing.T, f *alertFault) {
	t.Helper()
	s := newAlertStage(t, f, "../../../deploy/alerts.yaml", recordedEvery)
	began := time.Now()
	time.Sleep(40 * time.Second) // a piece of what is normal
	r := &recording{Fault: f.name, Step: f.step, Fires: f.within, Measured: map[string]measured{}}
	struck := time.Now()
	mend := f.strike(s)
	time.Sleep(slices.Max(slices.Collect(maps.Values(f.within))) + 15*time.Second)
	mended := time.Now()
	mend()
	time.Sleep(max(f.after, time.Minute))
	end := time.Now()
	r.Struck, r.Mended, r.End = struck.Sub(began).Round(time.Second), mended.Sub(began).Round(time.Second), end.Sub(began).Truncate(recordedEvery)

	for _, is := range s.prometheus.samples(`ALERTS{alertstate="firing"}`, end.Sub(began)) {
		name, first, last := is.labels["alertname"], is.at[0], is.at[len(is.at)-1]
		m := measured{Fired: first.Sub(struck).Round(time.Second)}
		if end.Sub(last) > 3*recordedEvery {
			m.Over = max(last.Sub(mended)+recordedEvery, 0).Round(time.Second)
		}
		if before, twice := r.Measured[name]; twice {
			m = measured{Fired: min(m.Fired, before.Fired), Over: max(m.Over, before.Over)}
		}
		r.Measured[name] = m
	}
	for _, metric := range alertMetrics(t) {
		for _, is := range s.prometheus.samples(metric, end.Sub(began)) {
			if strings.HasSuffix(is.labels["__name__"], "_total") && slices.Max(is.values) == 0 {
				continue // most counters of errors: they would be most of the file
			}
			r.Series = append(r.Series, is.recorded(began, end, map[string]string{
				s.members[0].metrics: "aggregator-1:9091", s.members[1].metrics: "aggregator-2:9091",
				s.guards[0].metrics: "enforcer-1:9091", s.guards[1].metrics: "enforcer-2:9091", s.service.metrics: "shop-1:9091",
			}))
		}
	}
	sort.Slice(r.Series, func(i, j int) bool { return r.Series[i].Series < r.Series[j].Series })
	text, err := yaml.Dump(r, yaml.WithLineWidth(-1))
	if err != nil {
		t.Fatal(err)
	}
	head := "# What a real Prometheus saw of the real programs: go test ./internal/testing/e2e -run TestAlertsFireAndRunbooksMend -alerts.record\n"
	if err := os.WriteFile(filepath.Join(recordedIn, f.file+".yaml"), append([]byte(head), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %+v, expected %v", f.name, r.Measured, f.within)
}

// alertMetrics are the vectors that alerts look at.
func alertMetrics(t *testing.T) []string {
	t.Helper()
	src, err := os.ReadFile("../../../deploy/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^ *expr: (.*)$`).FindAllStringSubmatch(string(src), -1) {
		for _, m := range regexp.MustCompile(`\b(up|tallygate_[a-z_]+)\b(\{[^}]*\})?`).FindAllString(line[1], -1) {
			found[strings.Replace(m, `up{job=~`, `up{job!~"shop",job=~`, 1)] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// samples are a series' values of the last while.
type samples struct {
	labels map[string]string
	at     []time.Time
	values []float64
}

func (p *prometheus) samples(vector string, last time.Duration) (all []samples) {
	p.t.Helper()
	var data struct {
		Result []struct {
			Metric map[string]string
			Values [][2]any
		}
	}
	query := fmt.Sprintf("%s[%ds]", vector, int(last.Seconds())+1)
	eventually(p.t, "Prometheus has "+query, func() bool { return p.ask("query?query="+url.QueryEscape(query), &data) })
	for _, r := range data.Result {
		s := samples{labels: r.Metric}
		for _, v := range r.Values {
			n, err := strconv.ParseFloat(v[1].(string), 64)
			if err != nil {
				p.t.Fatal(err)
			}
			s.at, s.values = append(s.at, time.UnixMilli(int64(math.Round(v[0].(float64)*1000)))), append(s.values, n)
		}
		all = append(all, s)
	}
	return all
}

// recorded is the series in promtool's notation, from began on. Times are of a clock that began then.
func (s *samples) recorded(began, end time.Time, instances map[string]string) recordedSeries {
	step := func(at time.Time) int { return int(math.Round(float64(at.Sub(began)) / float64(recordedEvery))) }
	name := s.labels["__name__"]
	values := make([]string, step(end))
	first := s.at[0]
	for i, at := range s.at {
		k := step(first) + int(math.Round(float64(at.Sub(first))/float64(recordedEvery)))
		if k < 0 || k >= len(values) {
			continue
		}
		v := s.values[i]
		if strings.HasSuffix(name, "_timestamp_seconds") && v != 0 {
			v += float64(k)*recordedEvery.Seconds() - float64(at.UnixMilli())/1000
		}
		values[k] = strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
	}
	var labels []string
	for _, label := range slices.Sorted(maps.Keys(s.labels)) {
		if label != "__name__" {
			value := s.labels[label]
			if label == "instance" {
				value = instances[value]
			}
			labels = append(labels, fmt.Sprintf("%s=%q", label, value))
		}
	}
	return recordedSeries{name + "{" + strings.Join(labels, ",") + "}", inRuns(values)}
}

// inRuns writes values as promtool reads them: 5x3 is four fives, 0+5x3 is 0, 5, 10, 15. Where a series
// ends it is stale, and _ is no sample.
func inRuns(values []string) string {
	var out []string
	for i := 0; i < len(values); {
		if values[i] == "" {
			n := i
			for n < len(values) && values[n] == "" {
				n++
			}
			if i > 0 {
				out, i = append(out, "stale"), i+1
			}
			if n > i {
				out = append(out, fmt.Sprintf("_x%d", n-i))
			}
			i = n
			continue
		}
		n, by := steady(values[i:])
		switch {
		case n == 1:
			out = append(out, values[i])
		case by == 0:
			out = append(out, fmt.Sprintf("%sx%d", values[i], n-1))
		default:
			out = append(out, fmt.Sprintf("%s%+gx%d", values[i], by, n-1))
		}
		i += n
	}
	return strings.Join(out, " ")
}

// steady is how many values at the beginning differ by the same whole number each.
func steady(values []string) (n int, by float64) {
	number := func(i int) float64 {
		if i >= len(values) || values[i] == "" {
			return math.NaN()
		}
		v, _ := strconv.ParseFloat(values[i], 64)
		return v
	}
	by = number(1) - number(0)
	if by != math.Trunc(by) { // also when there is no second one
		return 1, 0
	}
	for n = 1; number(n)-number(n-1) == by; n++ {
	}
	if n < 3 && by != 0 {
		return 1, 0
	}
	return n, by
}
