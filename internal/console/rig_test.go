package console

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/internal/run/health/watch"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// noon is the time of tests' pages.
var noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// aggregator is one of which tests know the tokens: each is the name of its role. Without needsToken everybody
// is its admin.
type aggregator struct {
	mux        *http.ServeMux
	needsToken bool
}

func (a *aggregator) whoami(w http.ResponseWriter, r *http.Request) {
	_, token, given := strings.Cut(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case !a.needsToken:
		httpjson.Reply(w, map[string]string{"role": "admin", "credential": "none"})
	case !given:
		httpjson.Problem(w, http.StatusUnauthorized, "this needs a credential")
	default:
		httpjson.Reply(w, map[string]string{"name": "ann", "role": token, "credential": "token"})
	}
}

// start runs a console of an installation that is as the state says. It returns the console's address.
func start(t testing.TB, s *watch.State, needsToken bool, tune ...func(*Program, *http.ServeMux)) string {
	t.Helper()
	site, _ := startStoppable(t, s, needsToken, tune...)
	return site
}

func startStoppable(t testing.TB, s *watch.State, needsToken bool, tune ...func(*Program, *http.ServeMux)) (site string, stop func()) {
	t.Helper()
	a := &aggregator{http.NewServeMux(), needsToken}
	a.mux.HandleFunc("GET /v1/whoami", a.whoami)
	server := httptest.NewServer(a.mux)
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Program{API: apiclient.New(server.URL, client), Health: watch.Still(s), HTTP: l, Registry: ops.NewRegistry("console"),
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: func() time.Time { return noon }}
	for _, change := range tune {
		change(p, a.mux)
	}
	return "http://" + l.Addr().String(), testrun.Start(t, p.Run)
}

// works is an installation in which all is well; it is judged as it would be in life.
func works() *watch.State {
	r := readings()
	return stateOf(r)
}

// broken is one with a link of each level, and a banner.
func broken() *watch.State {
	r := readings()
	r.Redis.Err, r.Redis.Failing = fmt.Errorf("dial tcp 10.0.0.7:6379: connect: connection refused"), noon.Add(-40*time.Second)
	r.Cluster.Value.Members[1].Aggregator.Rules.FileOK, r.Cluster.Value.Members[1].Aggregator.Rules.FileError = false, `rules.yaml:12:7: unknown field "limmit"; did you mean "limit"?`
	r.Cluster.Value.Members[1].Aggregator.Partitions[1].LagSeconds, r.Cluster.Value.Members[1].Aggregator.Partitions[1].Lag = 9, 4120
	r.Enforcers.Value[2].Age = 12 * time.Second
	r.Enforcers.Value[1].Enabled, r.Enforcers.Value[1].OffCause, r.Enforcers.Value[1].OffSince = false, "file", noon.Add(-17*time.Minute)
	s := stateOf(r)
	for i := range s.Points {
		if at := s.Points[i].At; at.After(noon.Add(-4 * time.Minute)) {
			s.Points[i].Counted -= 180 * at.Sub(noon.Add(-4*time.Minute)).Seconds()
		}
	}
	s.Numbers.Counted, s.Numbers.Lag, s.Numbers.LagTime, s.Numbers.Worst, s.Numbers.InDoubt = 1020, 43_200, 9*time.Second, 3, 2
	return s
}

func readings() *health.Observations {
	ends := map[int32]int64{0: 1_204_113, 1: 1_198_002, 2: 1_200_870, 3: 1_202_345}
	r := &health.Observations{Now: noon, Began: noon.Add(-time.Hour)}
	read := noon.Add(-400 * time.Millisecond)
	r.Kafka = health.Reading[health.Kafka]{At: read, Value: health.Kafka{Brokers: 3, Moved: read, Events: health.Topic{Name: "tallygate.events", Partitions: 4, Ends: ends},
		Verdicts: health.Topic{Name: "tallygate.verdicts", Partitions: 4, Ends: ends}}}
	member := func(name string, own ...int32) api.Status {
		s := api.Status{Component: "aggregator", Instance: name, Address: name + ":8081", Version: "v0.2.0", Commit: "4f1c0de", Go: "go1.26", Started: noon.Add(-50 * time.Hour), Now: read,
			Uptime: 180_000, Ready: true, Config: []api.Setting{{Name: "checkpoint-every", Value: "1s", From: "default"}, {Name: "kafka-password-file", Value: "•••", From: "flag"}},
			Errors:     []api.LoggedError{{Level: "warn", Message: "Redis does not answer", Error: "i/o timeout", First: noon.Add(-9 * time.Hour), Last: noon.Add(-8 * time.Hour), Count: 3}},
			Aggregator: &api.AggregatorStatus{Of: 4, Rules: api.RulesStatus{Version: 7, Name: "shop", File: "rules.yaml", FileOK: true}}}
		for _, p := range own {
			s.Aggregator.Partitions = append(s.Aggregator.Partitions, api.PartitionStatus{Partition: p, State: "open", Events: 240 + 35*float64(p), Keys: 51_200 + 900*int(p), Bytes: 9_400_000 + int64(p)*120_000,
				LastFetch: read, LastCheckpoint: read.Add(-700 * time.Millisecond), TakenOver: noon.Add(-50 * time.Hour), TakeoverSeconds: 1.4, Takeovers: 1})
		}
		return s
	}
	r.Cluster = health.Reading[health.Cluster]{At: read, Value: health.Cluster{Members: []api.Status{member("agg-0", 0, 1), member("agg-1", 2, 3)}}}
	r.Redis = health.Reading[health.Redis]{At: read, Value: health.Redis{Latency: 400 * time.Microsecond, Servers: []health.Server{{Version: "8.0.2", Policy: health.NoEviction, Memory: 48 << 20, MaxMemory: 512 << 20}},
		Now: read, Shards: []health.Shard{{Written: true, Entries: 318, Beat: read.Add(-300 * time.Millisecond), Applied: read.Add(-300 * time.Millisecond), Reached: ends}}}}
	for i, name := range []string{"decision-0", "orders", "search"} {
		b := presence.Beat{ID: fmt.Sprint(name, "-id"), Kind: presence.Go, Name: name, Version: "v0.2.0", Started: noon.Add(-30 * time.Hour), At: read, Seen: read, Age: 900 * time.Millisecond,
			Staleness: 0.35, Entries: 318, Enabled: true, Checks: 9_120_400 + uint64(i), Denied: 48_210}
		if i == 0 {
			b.Kind, b.URL = presence.DecisionServer, "http://decision-0:8080"
		}
		r.Enforcers.Value = append(r.Enforcers.Value, b)
	}
	r.Enforcers.At = read
	return r
}

// stateOf judges, and adds a quarter of an hour of history.
func stateOf(r *health.Observations) *watch.State {
	s := &watch.State{At: r.Now, Readings: *r}
	earlier := *r
	earlier.Now = r.Now.Add(-40 * time.Second)
	_, memory := health.Judge(health.Memory{}, &earlier)
	s.Chain, _ = health.Judge(memory, r)
	total := 4_805_330.0
	for i := range 900 {
		at := noon.Add(time.Duration(i-899) * time.Second)
		total += 1150 + 90*float64(i%60)/60 + 40*float64(i%7)/7
		s.Points = append(s.Points, watch.Point{At: at, In: total, Counted: total})
	}
	s.Numbers = watch.Numbers{In: 1204, Counted: 1204, Lag: 0, Worst: -1, Verdicts: 3.4, Denials: 27, Blocked: 318, P99: 8200 * time.Microsecond, Enforcers: 3}
	return s
}

// fetch is a GET, or a POST of a form, as a browser of this site sends it; redirects are not followed.
func fetch(t testing.TB, client *http.Client, method, address, form string) (status int, body string, header http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Header
}
