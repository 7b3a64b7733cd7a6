package watch_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/internal/run/health/watch"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// cluster answers as an aggregator does.
func cluster(w http.ResponseWriter, _ *http.Request) {
	a := &api.AggregatorStatus{Of: 2, Rules: api.RulesStatus{Version: 1, FileOK: true}, Partitions: []api.PartitionStatus{{State: "open"}, {Partition: 1, State: "open"}}}
	httpjson.Reply(w, api.Cluster{Members: []api.Status{{Instance: "a", Now: time.Now(), Ready: true, Aggregator: a}}})
}

// The polls read what there is, and say within five seconds what there is no longer: on the embedded servers. The
// same on real ones, with rights, is in internal/testing/e2e.
func TestPolls(t *testing.T) {
	t.Parallel()
	stack, err := devstack.Start(t.Context(), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer stack.Close()
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	if _, err := topics.Ensure(t.Context(), stack.Kafka, config, topics.Config{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	rds := redis.NewClient(&redis.Options{Addr: stack.Redis})
	defer rds.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/cluster", cluster)
	api := httptest.NewServer(mux)
	defer api.Close()
	beats := &presence.Beat{ID: "1", Name: "orders", Enabled: true, At: time.Now(), Started: time.Now()}
	if err := presence.Write(t.Context(), rds, "", *beats); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	w := watch.New(watch.Config{Kafka: &kafkaconn.Kafka{Brokers: stack.Kafka}, Redis: rds, API: apiclient.New(api.URL, client), Every: 200 * time.Millisecond})
	stop := testrun.Start(t, w.Run)
	defer stop()
	testrun.Eventually(t, "what there is was read", says(w, map[string]string{"events": "2 partitions on 1 broker", "aggregators": "1 member, every partition is counted",
		"redis": "the blocklist was never written", "enforcer:1": "verdicts", "producers": "no event since the console began"}))
	emitOne(t, stack.Kafka)
	testrun.Eventually(t, "an event is seen to arrive", says(w, map[string]string{"producers": "events arrive"}))

	api.Close()
	testrun.Eventually(t, "no aggregator answers", says(w, map[string]string{"aggregators": "no aggregator answers"}))
	stack.Close()
	testrun.Eventually(t, "Kafka and Redis are away", says(w, map[string]string{"events": "Kafka does not answer", "redis": "Redis does not answer", "verdicts": "not seen",
		"producers": "not seen", "enforcer:1": "before Redis could not be read any more"}))
	for _, l := range w.State().Chain.Links {
		if l.Level == health.OK {
			t.Errorf("%s is still ok: %s", l.Name, l.Cause)
		}
	}
}

// says reports whether the links have these words, by their names.
func says(w *watch.Watch, want map[string]string) func() bool {
	return func() bool {
		s := w.State()
		for name, words := range want {
			if s == nil || !slices.ContainsFunc(s.Chain.Links, func(l health.Link) bool { return l.Name == name && strings.Contains(l.Cause, words) }) {
				return false
			}
		}
		return true
	}
}

func emitOne(t *testing.T, brokers []string) {
	t.Helper()
	e, err := emit.New(emit.Config{Brokers: brokers})
	if err != nil {
		t.Fatal(err)
	}
	e.Emit(event.Event{UID: "42", API: "search.query"})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		t.Error(err)
	}
}

// A user whose password Redis does not know: the poll had a panic, since commands that were never sent have neither
// an answer nor an error.
func TestRedisThatDoesNotKnowTheConsole(t *testing.T) {
	stack, err := devstack.Start(t.Context(), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer stack.Close()
	rds := redis.NewClient(&redis.Options{Addr: stack.Redis, Username: "console", Password: "wrong"})
	defer rds.Close()
	w := watch.New(watch.Config{Kafka: &kafkaconn.Kafka{Brokers: stack.Kafka}, Redis: rds, API: apiclient.New("http://127.0.0.1:1", nil), Every: 100 * time.Millisecond})
	stop := testrun.Start(t, w.Run)
	defer stop()
	testrun.Eventually(t, "Redis is said to refuse the console", says(w, map[string]string{"redis": "read the blocklist in Redis"}))
}

// The console's own token is refused: that was on a page, and in no log.
func TestARefusedTokenIsLoggedOnce(t *testing.T) {
	stack, err := devstack.Start(t.Context(), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer stack.Close()
	var refuses atomic.Bool
	var asked atomic.Int32
	refuses.Store(true)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if refuses.Load() {
			http.Error(w, `{"detail": "no such token"}`, http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte("{}"))
	}))
	defer api.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var out testrun.Output
	w := watch.New(watch.Config{Kafka: &kafkaconn.Kafka{Brokers: stack.Kafka}, API: apiclient.New(api.URL, client), Every: 10 * time.Millisecond, Logger: out.Logger()})
	stop := testrun.Start(t, w.Run)
	defer stop()
	testrun.Eventually(t, "it is logged", func() bool { return out.Has("read the aggregators") })
	rounds := asked.Load() + 3
	testrun.Eventually(t, "rounds have passed", func() bool { return asked.Load() >= rounds })
	refuses.Store(false)
	testrun.Eventually(t, "the end is logged", func() bool { return out.Has("the aggregators can be read") })
	if n := out.Count("read the aggregators: "); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, out.String())
	}
}
