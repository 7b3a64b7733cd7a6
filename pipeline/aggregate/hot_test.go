package aggregate

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
	"github.com/tallygate/tallygate/pipeline/aggregate/hotkeys"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

// One user makes half of all events. Every instance names the user, the user's partition, and the
// load of each partition; explain shows it for that user.
func TestHotKeysAreSeenFromEveryInstance(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		ms := r.two(compile(t, yearly))
		for i := range 400 {
			r.emit(hit("busy", "x.y"), hit(fmt.Sprintf("u%d", i), "x.y"))
		}
		partition := event.Partition([]byte("busy"), rigPartitions)
		for _, m := range ms {
			var reply api.HotKeys
			eventually(t, "all has been counted", func() bool {
				reply = hotKeys(t, m, "")
				return len(reply.Partitions) == rigPartitions && len(reply.Keys) > 0 && reply.Keys[0].Share > 0.7 && reply.Partitions[partition].Share > 0.5
			})
			k := reply.Keys[0]
			if k.Key["uid"] != "busy" || k.Partition != partition || k.Share > 0.9 || k.EventsPerSecond <= 0 || len(reply.Missing) > 0 {
				t.Errorf("%+v", reply)
			}
			owners := map[string]bool{}
			for i, p := range reply.Partitions {
				if owners[p.Owner] = true; p.Partition != int32(i) || p.Share > 0.5 && p.Partition != partition {
					t.Errorf("partition %+v", p)
				}
			}
			if len(owners) != 2 {
				t.Errorf("owners %v", owners)
			}
			if reply := hotKeys(t, m, "?limit=1"); len(reply.Keys) != 1 {
				t.Errorf("one key was asked for: %+v", reply.Keys)
			}
			if body := get(m.ServeExplain, "/v1/explain?uid=busy").Body.String(); !strings.Contains(body, `"hot":{"share":0.`) {
				t.Errorf("explain does not say that the key is hot: %s", body)
			}
			for _, bad := range []string{"0", "1001", "many"} {
				if w := get(m.ServeHotKeys, "/v1/hot-keys?limit="+bad); w.Code != http.StatusBadRequest {
					t.Errorf("limit %s answers %d", bad, w.Code)
				}
			}
		}
	})
}

// Partitions of an instance that does not answer are reported as missing, with the reason.
func TestHotKeysSayWhatIsMissing(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		m := r.half(0, compile(t, yearly), func(c *Config) { c.Advertise = "192.0.2.77:1" })
		silent := r.half(1, compile(t, yearly))
		r.shared(m, silent)
		for asked, why := range map[*member]string{m: "advertises no address", silent: "ask its owner"} {
			list := hotKeys(t, asked, "").Missing
			if len(list) != rigPartitions/2 || slices.ContainsFunc(list, func(p api.MissingPartition) bool { return !strings.Contains(p.Reason, why) }) {
				t.Errorf("missing are %+v, and all should say %q", list, why)
			}
		}
	})
}

// An instance that only publishes, or has just started, knows the topics but has no connection to
// ask for owners. Requests once panicked there.
func TestQuestionsBeforeTheConnection(t *testing.T) {
	a, err := New(Config{Brokers: []string{"memory:9"}, Rules: compile(t, yearly)})
	if err != nil {
		t.Fatal(err)
	}
	a.found.Store(&topics.Layout{Names: a.names, Partitions: rigPartitions})
	if w := get(a.ServeExplain, "/v1/explain?uid=1"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "not connected") {
		t.Errorf("explain: %d %s", w.Code, w.Body)
	}
	if w := get(a.ServeHotKeys, "/v1/hot-keys"); w.Code != http.StatusOK || strings.Count(w.Body.String(), "not connected") != rigPartitions {
		t.Errorf("hot-keys: %d %s", w.Code, w.Body)
	}
}

func get(handler http.HandlerFunc, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	handler(w, httptest.NewRequest(http.MethodGet, path, nil)) //nolint:noctx // answered at once
	return w
}

func hotKeys(t *testing.T, m *member, query string) (reply api.HotKeys) {
	t.Helper()
	w := get(m.ServeHotKeys, "/v1/hot-keys"+query)
	if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return reply
}

func TestWhatTheLogTellsOfHeat(t *testing.T) {
	hot := func(partition int32, rate, share float64) ask.Heat {
		return ask.Heat{Partition: partition, Rate: rate, Keys: []hotkeys.Key{{Text: []byte("attrs.a=x&uid=42"), Share: share, Rate: share * rate}}}
	}
	even := []ask.Heat{{Partition: 0, Rate: 1000}, {Partition: 1, Rate: 1100}, {Partition: 2, Rate: 900}}
	for _, c := range []struct {
		about string
		list  []ask.Heat
		want  []string // the partitions reported, and in which words
	}{
		{"nothing", even, nil},
		{"one key", []ask.Heat{even[0], hot(1, 1100, 0.2), even[2]}, []string{"1 one key"}},
		{"a key below the share", []ask.Heat{even[0], hot(1, 1100, 0.09), even[2]}, nil},
		{"a key below the rate", []ask.Heat{even[0], hot(1, 400, 0.2), even[2]}, nil},
		{"a partition", []ask.Heat{even[0], {Partition: 1, Rate: 3000}, even[2]}, []string{"1 a partition"}},
		{"a partition, none of much", []ask.Heat{{Partition: 0, Rate: 1}, {Partition: 1, Rate: 90}}, nil},
		{"the only partition", []ask.Heat{{Partition: 1, Rate: 90_000}}, nil},
		{"a key and its partition: one line", []ask.Heat{even[0], hot(1, 9000, 0.2), even[2]}, []string{"1 one key"}},
	} {
		j := heatJudge{share: 0.1, rate: 100}
		if lines := j.lines(0, c.list); lines != nil {
			t.Errorf("%s: lines at once: %v", c.about, lines)
		}
		var got []string
		for at := event.Micros(0); at < hotQuiet+hotWarmup; at += event.Second {
			for _, l := range j.lines(at, c.list) {
				got = append(got, fmt.Sprint(l.args[1], " ", l.what[:len("one key")]))
				if strings.Contains(fmt.Sprint(l.args...), "42") {
					t.Errorf("%s: the log has the key: %v", c.about, l.args)
				}
			}
		}
		for i := range c.want {
			c.want[i] = c.want[i][:len("1 one key")]
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %q, want %q", c.about, got, c.want)
		}
	}
}

func TestHeatLines(t *testing.T) {
	list := []ask.Heat{{Partition: 7, Rate: 1000, Keys: []hotkeys.Key{{Text: []byte("attrs.a=x&uid=42"), Share: 0.5, Rate: 500}}}}
	j := heatJudge{share: 0.1, rate: 100, names: true}
	told := 0
	for at := event.Micros(0); at < 5*event.Minute; at += event.Second {
		for _, l := range j.lines(at, list) {
			told++
			if !reflect.DeepEqual(l.args, []any{"partition", int32(7), "share", 0.5, "events_per_second", 500.0, "dimensions", "attrs.a&uid", "key", "attrs.a=x&uid=42"}) {
				t.Errorf("%v", l.args)
			}
		}
	}
	if told != 5 {
		t.Errorf("%d lines in five minutes", told)
	}
	j.lines(5*event.Minute, nil) // given away
	for at := 5 * event.Minute; at < 5*event.Minute+hotWarmup-event.Second; at += event.Second {
		if lines := j.lines(at+event.Second, list); lines != nil {
			t.Fatalf("a line about a partition that was just taken over: %v", lines)
		}
	}
	off := heatJudge{share: -1, rate: 100}
	for at := event.Micros(0); at < event.Minute; at += event.Second {
		if off.lines(at, list) != nil {
			t.Fatal("a line, though they were turned off")
		}
	}
	if _, err := New(Config{Brokers: []string{"k:1"}, Rules: compile(t, yearly), HotShare: math.NaN()}); err == nil {
		t.Error("a share that is no number was taken")
	}
}
