package console

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/internal/tools/auditlog"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
	"github.com/tallygate/tallygate/verdict"
)

// unreachable are keys of an installation in which neither Kafka nor Redis answers.
func unreachable(t testing.TB) *Keys {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	k, err := NewKeys(KeysConfig{Kafka: &kafkaconn.Kafka{Brokers: []string{"127.0.0.1:1"}}, Redis: client, Secrets: [][]byte{[]byte("a secret of the tests")},
		Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func withKeys(k *Keys) func(*Program, *http.ServeMux) {
	return func(p *Program, mux *http.ServeMux) {
		p.Keys = k
		mux.HandleFunc("POST /v1/reads", func(w http.ResponseWriter, _ *http.Request) { httpjson.Reply(w, map[string]string{"id": "r1"}) })
		mux.HandleFunc("GET /v1/explain", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("uid") == "lost" {
				httpjson.Problem(w, http.StatusServiceUnavailable, "partition 3 has no owner")
				return
			}
			httpjson.Reply(w, map[string]any{"key": map[string]string{"uid": r.URL.Query().Get("uid")}, "partition": 3, "rules": []any{}})
		})
		mux.HandleFunc("GET /v1/exemptions", func(w http.ResponseWriter, _ *http.Request) {
			httpjson.Reply(w, map[string]any{"exemptions": []any{map[string]any{"from": "rules", "key": map[string]string{"api": "login"}, "in": "192.0.2.0/24", "until": nil, "reason": "our office"}},
				"missing": []any{map[string]any{"partition": 3, "reason": "no owner"}}})
		})
	}
}

func says(t testing.TB, c *http.Client, address string) string {
	t.Helper()
	_, body, _ := fetch(t, c, http.MethodGet, address, "")
	return mainOf(body)
}

// With Kafka and Redis gone each page is there, and says what is missing.
func TestKeyPagesWithoutKafkaAndRedis(t *testing.T) {
	t.Parallel()
	k := unreachable(t)
	site := start(t, works(), false, withKeys(k))
	c := visitor(t)
	ref := k.refs.Ref([]event.Dim{{Name: "uid", Value: "42"}})
	testrun.Eventually(t, "both are noticed", func() bool {
		return strings.Contains(says(t, c, site+"/audit"), "The audit cannot be read") && strings.Contains(says(t, c, site+"/blocked"), "has not been read yet")
	})
	if text := says(t, c, site+"/key/"+ref); !containsAll(text, "No rule has counted this key", "The audit cannot be read", "name one") {
		t.Error(text)
	}
	if text := says(t, c, site+"/key/"+ref+"?api=login"); !containsAll(text, "Redis does not answer, so it is not known which enforcers there are") {
		t.Error(text)
	}
	lost := k.refs.Ref([]event.Dim{{Name: "uid", Value: "lost"}})
	if text := says(t, c, site+"/key/"+lost); !containsAll(text, "partition 3 has no owner", "What happened") {
		t.Error(text)
	}
	if text := says(t, c, site+"/exemptions"); !containsAll(text, "Partition 3 did not answer", "our office", "never", "ip in •••") || strings.Contains(text, "192.0.2") {
		t.Error(text)
	}
	if text := says(t, c, site+"/audit?older=1"); !strings.Contains(text, "The audit topic cannot be read") && !strings.Contains(text, "Read from Kafka for") {
		t.Error(text)
	}
}

func TestAConsoleThatFollowsNothing(t *testing.T) {
	site := start(t, works(), false)
	for _, path := range []string{"/blocked", "/key", "/exemptions", "/audit"} {
		if text := says(t, visitor(t), site+path); !strings.Contains(text, "This console does not follow the blocklist") {
			t.Error(path, text)
		}
	}
}

// A read that the audit does not take shows nothing.
func TestAReadThatIsNotRecorded(t *testing.T) {
	site := start(t, works(), false, func(p *Program, _ *http.ServeMux) { p.Keys = unreachable(t) })
	_, body, header := fetch(t, visitor(t), http.MethodPost, site+"/key", "action=search&key=uid%3D42")
	if text := mainOf(body); !strings.Contains(text, "The read cannot be recorded, so nothing is shown") || strings.Contains(header.Get("Set-Cookie"), shownCookie) {
		t.Error(text, header)
	}
}

// 100,000 blocked keys, from page to page.
func TestAHundredThousandBlocked(t *testing.T) {
	t.Parallel()
	k := unreachable(t)
	if err := k.list.SetShards(1); err != nil {
		t.Fatal(err)
	}
	all := make([]verdict.Verdict, 100_000)
	for i := range all {
		all[i] = verdict.Verdict{Rule: fmt.Sprint("rule-", i%500), Key: []event.Dim{{Name: "uid", Value: fmt.Sprint("user-", i)}}, Count: 6 * event.One, Limit: 5 * event.One,
			Since: event.FromTime(noon), Until: event.FromTime(noon.Add(time.Hour + time.Duration(i)*time.Second)), Seq: 1}
	}
	k.list.Replace(0, all)
	k.list.Heartbeat(0, event.FromTime(noon))
	site := start(t, works(), false, withKeys(k))
	c := visitor(t)
	began := time.Now()
	_, body, _ := fetch(t, c, http.MethodGet, site+"/blocked", "")
	t.Logf("the first page of 100,000 takes %v, and has %d bytes", time.Since(began), len(body))
	text := mainOf(body)
	if !containsAll(text, "100 000 of 100 000 verdicts in force", "Next page", "up to date") || strings.Contains(text, "user-") {
		t.Error(text[:min(len(text), 2000)])
	}
	seen := map[string]bool{}
	for range 3 {
		for _, ref := range strings.Split(body, `href="/key/`)[1:] {
			ref, _, _ = strings.Cut(ref, `"`)
			seen[ref] = true
		}
		_, behind, _ := strings.Cut(body, `class="pager"`)
		next := answer{text: behind}.link(t, `/blocked\?after=[A-Za-z0-9_-]+`)
		_, body, _ = fetch(t, c, http.MethodGet, site+next, "")
	}
	if len(seen) != 300 {
		t.Errorf("three pages show %d keys", len(seen))
	}
	_, body, _ = fetch(t, c, http.MethodGet, site+"/blocked/export.csv?rule=rule-7", "")
	if lines := strings.Count(body, "\n"); lines != 201 || !strings.Contains(body, "uid=user-7,rule-7,enforced,log,") {
		t.Errorf("%d lines: %.300s", lines, body)
	}
}

// Each enforcer is asked within a second, whatever the others do; none gets a credential, and what differs is said.
func TestWhatEnforcersAnswer(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	enforcer := func(name, answer string) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.URL.Path != "/v1/check" || r.Header.Get("Authorization") != "" || !strings.Contains(string(body), `"uid":"42"`) || !strings.Contains(string(body), `"api":"login"`) {
				t.Errorf("%s is asked %s %v %s", name, r.URL, r.Header, body)
			}
			switch answer {
			case "hang":
				<-r.Context().Done()
			case "redirect":
				http.Redirect(w, r, "/v1/check", http.StatusTemporaryRedirect)
			default:
				_, _ = io.WriteString(w, answer)
			}
		}))
		t.Cleanup(s.Close)
		if err := presence.Write(t.Context(), client, "tallygate", presence.Beat{ID: name, Kind: presence.DecisionServer, Name: name, URL: s.URL, Enabled: true}); err != nil {
			t.Fatal(err)
		}
	}
	enforcer("a-denies", `{"allowed":false,"action":"block","rule":"search","staleness":"12ms"}`)
	enforcer("b-allows", `{"allowed":true,"staleness":"1m2s","in_doubt":true}`)
	enforcer("c-hangs", "hang")
	enforcer("d-redirects", "redirect")
	for _, b := range []presence.Beat{{ID: "e", Kind: presence.Go, Name: "e-service"}, {ID: "f", Name: "f-odd", URL: "file:///etc/passwd", Enabled: true}} {
		if err := presence.Write(t.Context(), client, "tallygate", b); err != nil {
			t.Fatal(err)
		}
	}
	k := unreachable(t)
	k.redis = client
	defer k.checks.CloseIdleConnections()
	list, err := k.enforcers(t.Context(), []event.Dim{{Name: "uid", Value: "42"}, {Name: "attrs.campaign", Value: "x"}, {Name: "ip/24", Value: "192.0.2.0/24"}}, "login", true)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range list {
		got = append(got, c.Name+": "+c.Answer+" | "+c.Differs)
	}
	text := strings.Join(got, "\n")
	if !containsAll(text, "a-denies: block by search | \n", "b-allows: allowed, since its blocklist is stale | differs: a verdict in force denies this", "c-hangs: no answer", "d-redirects: it answers 307",
		"e-service: it is inside a service, and cannot be asked; its kill switch is on", "f-odd: its address is not one of HTTP") {
		t.Error(text)
	}
	compareChecks(list, false)
	if list[0].Differs != "differs: no verdict in force on this key denies this" {
		t.Error(list[0].Differs)
	}
}

// Why a key was blocked at a moment is told from the audit, also when an unblock ended it early.
func TestWhyAtAMoment(t *testing.T) {
	e := &eyes{Keys: unreachable(t), known: []event.Dim{{Name: "uid", Value: "42"}}}
	at := func(m int) event.Micros { return event.FromTime(noon.Add(time.Duration(m) * time.Minute)) }
	v := verdict.Verdict{Rule: "search", Key: e.known, Action: verdict.ActBlock, Count: 6 * event.One, Limit: 5 * event.One, Since: at(0), Until: at(30), Seq: 1, Cause: verdict.Cause{ID: "e1", Partition: 3, Offset: 7}}
	gone := v
	gone.State, gone.Since, gone.Until, gone.Seq = verdict.Clear, at(10), at(10), 2
	entry := func(v *verdict.Verdict) *auditlog.Record {
		return &auditlog.Record{Entry: &auditlog.Entry{Type: auditlog.Verdict, At: v.Since, Rule: v.Rule, Verdict: v}}
	}
	line := timeline{list: []*auditlog.Record{entry(&gone), entry(&v)}}
	const want = "uid=42 is blocked by the rule search since 2026-11-25 12:00:00 UTC until 2026-11-25 12:30:00 UTC: 6 counted, and the limit is 5; triggered by event e1, record 3@7."
	if got := e.whyAt(&line, at(5)); got != want {
		t.Errorf("%q", got)
	}
	for _, m := range []int{-1, 10, 20, 30} {
		if got := e.whyAt(&line, at(m)); got != "" {
			t.Errorf("at %d: %q", m, got)
		}
	}
}

// What a form's text means, for spans and moments.
func TestMoments(t *testing.T) {
	for text, want := range map[string]time.Time{"2026-11-24 14:03": noon.Add(-21*time.Hour - 57*time.Minute), "90m": noon.Add(-90 * time.Minute), "7d": noon.Add(-7 * 24 * time.Hour), "2026-11-25T12:00:00Z": noon} {
		if got, err := parseMoment(text, noon); err != nil || !got.Equal(want) {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"tuesday", "-5m", "", "7 d"} {
		if _, err := parseMoment(text, noon); err == nil {
			t.Errorf("%q is taken for a time", text)
		}
	}
	if got := plainCells("=1+1", "uid=42", "", "-5"); got[0] != "'=1+1" || got[1] != "uid=42" || got[3] != "'-5" {
		t.Error(got)
	}
}
