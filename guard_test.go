package tallygate_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
	"github.com/tallygate/tallygate/verdict"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")) // sarama's metrics have one for good
}

// open opens a Guard, which is closed when the test ends.
func open(t *testing.T, cfg tallygate.Config) (*tallygate.Guard, *testrun.Output) {
	t.Helper()
	log := &testrun.Output{}
	cfg.Logger = log.Logger()
	g, err := tallygate.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, g) })
	return g, log
}

func shut(t *testing.T, g *tallygate.Guard) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := g.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// blocks writes a blocklist with one blocked user, as its layout is documented.
func blocks(t *testing.T, addr, uid string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	at := event.FromTime(time.Now())
	v := verdict.Verdict{Rule: "r", Public: "r", Key: []event.Dim{{Name: "uid", Value: uid}}, Action: verdict.ActBlock, Limit: event.One,
		APIs: []string{"*"}, Since: at - event.Second, Until: at + event.Hour, Seq: 1}
	key := "{tallygate:0}:verdicts"
	if err := client.HSet(t.Context(), key, "\x00epoch", "1", "\x00n", "0", "\x00stamp", "s", "\x00shards", "1",
		"\x00applied", strconv.FormatInt(int64(at), 10), string(verdict.AppendRecordKey(nil, &v)), string(verdict.AppendJSON(nil, &v))).Err(); err != nil {
		t.Fatal(err)
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// One constructor is enough: what a service wired by hand, and got wrong in silence.
func TestAGuardFollowsTheBlocklist(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	blocks(t, server.Addr(), "42")
	g, _ := open(t, tallygate.Config{Redis: server.Addr()})
	if err := g.WaitReady(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if g.Check("search", "42").Allowed || !g.Check("search", "43").Allowed {
		t.Error("the wrong user is denied")
	}
	handler := g.Middleware(httplimit.Options{UID: httplimit.Header("X-User")})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for user, want := range map[string]int{"42": http.StatusTooManyRequests, "43": http.StatusOK} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-User", user)
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%s is answered %d", user, w.Code)
		}
	}
	if g.Admitter() != nil || g.Stats().Feed.Snapshots == 0 || g.Table().Shards() != 1 {
		t.Errorf("%v %+v", g.Admitter(), g.Stats())
	}
}

// Open does not wait for Redis, nor fail without: the service starts, and is told what is missing.
func TestAGuardWithoutRedis(t *testing.T) {
	server := servers.StartRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	allow := func(password string) {
		t.Helper()
		if err := admin.Do(t.Context(), "ACL", "SETUSER", "shop", "on", "resetpass", ">"+password, "~*", "+@all").Err(); err != nil {
			t.Fatal(err)
		}
	}
	allow("secret")
	g, log := open(t, tallygate.Config{Redis: "redis://shop:wrong@" + server.Addr()})
	testrun.Eventually(t, "the refusal is told", func() bool { return log.Has("WRONGPASS") && g.Stats().Feed.Refused != nil })
	if err := g.WaitReady(within(t, time.Millisecond)); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("waiting: %v", err)
	}
	if log.Has("wrong@") || log.Has("=wrong") {
		t.Errorf("the log has the password: %s", log)
	}
	if !g.Check("search", "42").Allowed {
		t.Error("by default what is not known is allowed")
	}
	blocks(t, server.Addr(), "42")
	allow("wrong")
	if err := g.WaitReady(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
}

// Each mistake names its field and says what to do, and no error has a password.
func TestMistakesOfConfig(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	slow := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: time.Millisecond})
	defer slow.Close()
	ok := "127.0.0.1:1"
	for want, cfg := range map[string]tallygate.Config{
		"Config.Redis is empty":                     {},
		"Redis and RedisClient are both set":        {Redis: ok, RedisClient: client},
		"Config.Redis is http://u:xxxxx@r:1":        {Redis: "http://u:hunter@r:1"},
		"percent-encoded":                           {Redis: "redis://u:hun%zzter@r:1"},
		"Config.Shards is -1":                       {Redis: ok, Shards: -1},
		"Config.Table.Shards is set":                {Redis: ok, Table: enforce.Config{Shards: 2}},
		"Config.Table: enforce: OnStale":            {Redis: ok, Table: enforce.Config{OnStale: 9}},
		"Config.Emitter.Brokers is set":             {Redis: ok, Emitter: emit.Config{Brokers: []string{"k:1"}}},
		"Config.Emitter.Prefix":                     {Redis: ok, Emitter: emit.Config{Prefix: "other"}},
		"Config.Emitter.Topic":                      {Redis: ok, Emitter: emit.Config{Topic: "t"}},
		"Config.Kafka or Emitter: emit":             {Redis: ok, Kafka: []string{"no port"}},
		"RedisClient or Prefix: blocklist: Block":   {RedisClient: slow},
		"without braces":                            {Redis: ok, Prefix: "{x}"},
		"Config.Admit: admit: Enforcers is -1":      {Redis: ok, Admit: admit.With(admit.Config{Enforcers: -1})},
		"Config.Metrics: is there another Guard on": {Redis: ok, Kafka: []string{ok}, Metrics: taken(t)},
	} {
		g, err := tallygate.Open(t.Context(), cfg)
		if err == nil {
			t.Errorf("accepted, want %q", want)
			shut(t, g)
			continue
		}
		if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "tallygate: ") || strings.Contains(err.Error(), "hun") {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tallygate.Open(ended, tallygate.Config{Redis: ok}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// taken is a Registerer that has a Guard's metrics already.
func taken(t *testing.T) prometheus.Registerer {
	reg := prometheus.NewRegistry()
	open(t, tallygate.Config{Redis: "127.0.0.1:1", Kafka: []string{"127.0.0.1:1"}, Metrics: reg})
	return reg
}

// All metrics are there from the start, each is in the reference, and Close takes them out again.
func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	g, log := open(t, tallygate.Config{Redis: "127.0.0.1:1", Kafka: []string{"127.0.0.1:1"}, Metrics: reg})
	g.Middleware(httplimit.Options{UID: httplimit.Header("X")})
	g.Check("a", "")
	g.Emit(event.Event{})
	page, err := os.ReadFile(filepath.Join("docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.Contains(string(page), "`"+f.GetName()+"`") {
			t.Errorf("docs/reference/metrics.md does not have %s", f.GetName())
		}
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"tallygate_in_doubt": 1, "tallygate_enforcement_enabled": 1, "tallygate_checks_without_dimensions_total": 1,
		"tallygate_emit_dropped_total invalid": 1, "tallygate_emit_dropped_total queue_full": 0, "tallygate_emit_queued": 0,
		"tallygate_feed_errors_total auth": 0, "tallygate_presence_errors_total auth": 0, "tallygate_emit_errors_total auth": 0,
		"tallygate_integration_suspects_total same_address": 0, "tallygate_integration_suspects_total time_1970": 0,
	} {
		if got, there := values[name]; !there || got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	testrun.Eventually(t, "the dropped event is told", func() bool { return log.Has("reason=invalid") })
	shut(t, g)
	if families, _ := reg.Gather(); len(families) > 0 {
		t.Errorf("%d metrics are left", len(families))
	}
	tables := tallygate.NewCollector(nil, nil, nil)
	if reg.MustRegister(tallygate.NewCollector(g.Table(), nil, nil)); reg.Register(tables) != nil {
		t.Error("parts that are missing have metrics")
	}
}

// Without Kafka events go nowhere, which is said once.
func TestEventsWithoutKafka(t *testing.T) {
	g, log := open(t, tallygate.Config{Redis: "127.0.0.1:1"})
	for range 3 {
		if g.Emit(event.Event{UID: "42", API: "a"}) {
			t.Error("an event is taken")
		}
	}
	if n := log.Count("Config.Kafka has no brokers"); n != 1 {
		t.Errorf("said %d times", n)
	}
}
