package aggregate

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/keytext"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

func uidKey(uid string) []event.Dim { return []event.Dim{{Name: "uid", Value: uid}} }

// inForce returns the last verdict of each rule on a user that is in force, according to the
// verdict topic.
func (r *rig) inForce(uid string) map[string]verdict.Verdict {
	last := map[string]verdict.Verdict{}
	for _, v := range r.verdicts() {
		if v.KeyText() == "uid="+uid {
			last[v.Rule] = v
		}
	}
	for rule, v := range last {
		if v.State == verdict.Clear {
			delete(last, rule)
		}
	}
	return last
}

// Each command does what it should, and returns once its verdict is in the topic.
func TestCommands(t *testing.T) {
	inMemoryShows(t, "a command clears, blocks, resets or exempts, and is in the audit", func(t *testing.T, r *rig) {
		m := r.begin(compile(t, yearly))
		do := func(c ask.Command) api.Commanded {
			t.Helper()
			c.Reason, c.By = "a test", "tester"
			done, err := m.Command(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			return done
		}
		if done := do(ask.Command{Name: "block", Key: uidKey("u1"), For: time.Hour}); len(done.Verdicts) != 1 {
			t.Errorf("a block published %v", done.Verdicts)
		}
		v, ok := r.inForce("u1")[rules.ManualRule]
		if !ok || v.Until-v.Since != event.Hour || !v.Covers("whatever") || v.Seq <= 0 {
			t.Errorf("after a block of an hour there is in force %+v", v)
		}
		do(ask.Command{Name: "unblock", Key: uidKey("u1")})
		if got := r.inForce("u1"); len(got) != 0 {
			t.Errorf("after unblock there is in force %v", got)
		}

		for range 5 {
			r.emit(hit("u2", "a"), hit("u3", "a"), hit("u4", "a"))
		}
		eventually(t, "three users reach their limit", func() bool {
			return len(r.inForce("u2")) == 1 && len(r.inForce("u3")) == 1 && len(r.inForce("u4")) == 1
		})
		do(ask.Command{Name: "reset", Key: uidKey("u2"), Rule: "per-year"})
		if got := r.count("u2", "per-year", m); got != 0 || len(r.inForce("u2")) != 0 {
			t.Errorf("after reset u2 has counted %v, and %v is in force", got, r.inForce("u2"))
		}
		do(ask.Command{Name: "exempt", Key: uidKey("u3"), For: time.Hour})
		r.emit(hit("u3", "a"), hit("u3", "a"))
		eventually(t, "the exempt user is counted on", func() bool { return r.count("u3", "per-year", m) == 7*event.One })
		if got := r.inForce("u3"); len(got) != 0 {
			t.Errorf("of the exempt user there is in force %v", got)
		}
		do(ask.Command{Name: "forget", Key: uidKey("u4")})
		if got := r.count("u4", "per-year", m); got != 0 || len(r.inForce("u4")) != 0 {
			t.Errorf("after forget u4 has counted %v, and %v is in force", got, r.inForce("u4"))
		}
		if got := r.commandsAudited(); len(got) != 5 || got[0] != "block uid=u1 by tester: a test" {
			t.Errorf("the audit says %q", got)
		}
	})
}

// loopCommand begins a command in the loop topic: version and kind.
const loopCommand = "\x01\x03"

// commandsAudited are the commands in the audit topic, each once.
func (r *rig) commandsAudited() (list []string) {
	seen := map[string]bool{}
	for p := range int32(rigPartitions) {
		for _, rec := range r.records(r.names.Audit, p) {
			var line struct{ Type, ID, Command, Key, By, Reason string }
			if err := json.Unmarshal(rec.Value, &line); err != nil {
				r.t.Fatal(err)
			}
			if line.Type == "command" && !seen[line.ID] {
				seen[line.ID] = true
				list = append(list, fmt.Sprintf("%s %s by %s: %s", line.Command, line.Key, line.By, line.Reason))
			}
		}
	}
	// Sorted by time: they are spread over partitions.
	for i, line := range list {
		if strings.HasPrefix(line, "block") {
			list[0], list[i] = list[i], list[0]
		}
	}
	return list
}

// A command is carried out once, and keeps its place among the events that are replayed.
func TestACommandIsCarriedOutOnce(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		never := func(c *Config) { c.CheckpointEvery = time.Hour }
		one := r.begin(compile(t, yearly), never)
		for range 4 {
			r.emit(hit("u1", "a"))
		}
		eventually(t, "four are counted", func() bool { return r.count("u1", "per-year", one) == 4*event.One })
		if _, err := one.Command(t.Context(), ask.Command{Name: "reset", Key: uidKey("u1"), Reason: "a test"}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			r.emit(hit("u1", "a"))
		}
		eventually(t, "three are counted since", func() bool { return r.count("u1", "per-year", one) == 3*event.One })
		r.crash(one) // it ends without a checkpoint
		r.emit(hit("u1", "a"))
		eventually(t, "after a crash a fourth is counted", func() bool { return r.count("u1", "per-year", one) == 4*event.One })
	})
}

// A previous version of the program put commands into the loop. What it left there is carried out
// once.
func TestCommandsInTheLoopAreCarriedOutOnce(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		m := r.begin(compile(t, yearly), func(c *Config) { c.CheckpointEvery = time.Hour })
		for range 4 {
			r.emit(hit("u1", "a"))
		}
		eventually(t, "four are counted", func() bool { return r.count("u1", "per-year", m) == 4*event.One })
		left := loopCommand + `{"id":"X","command":"reset","key":"uid=u1","reason":"a test","by":"tester"}`
		r.emitTo(r.names.Loop, event.Partition([]byte("u1"), rigPartitions), left)
		eventually(t, "it counts from zero", func() bool { return r.count("u1", "per-year", m) == 0 })
		r.emit(hit("u1", "a"))
		eventually(t, "one is counted since", func() bool { return r.count("u1", "per-year", m) == event.One })
		r.crash(m)
		r.emit(hit("u1", "a"))
		eventually(t, "after a crash another one is", func() bool { return r.count("u1", "per-year", m) == 2*event.One })
		if got := r.commandsAudited(); len(got) != 1 || got[0] != "reset uid=u1 by tester: a test" {
			t.Errorf("the audit says %q", got)
		}
	})
}

// Whichever instance is asked, the owner of the key carries the command out.
func TestCommandsOverHTTP(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		servers := make([]*httptest.Server, 2)
		ms := make([]*member, 2)
		for i := range ms {
			servers[i] = r.serve(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { ms[i].ServeCommand(w, req) }))
			ms[i] = r.half(i, compile(t, yearly), func(c *Config) { c.Advertise = servers[i].Listener.Addr().String() })
		}
		r.shared(ms...)
		post := func(i int, body string) (int, string) {
			resp, err := servers[i].Client().Post(servers[i].URL, "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			return resp.StatusCode, string(b)
		}
		for i, uid := range uids(8) {
			body := fmt.Sprintf(`{"command":"block","key":{"uid":%q},"for":"1h","reason":"a test","by":"tester"}`, uid)
			eventually(t, uid+" is blocked", func() bool { // the group may be changing still
				status, answer := post(i%2, body)
				return status == http.StatusOK && strings.Contains(answer, `"rule":"manual"`)
			})
			if _, ok := r.inForce(uid)[rules.ManualRule]; !ok {
				t.Errorf("%s is not blocked", uid)
			}
		}
		for body, want := range map[string]string{
			`{"command":"block","key":{"uid":"u"},"reason":"r"}`:                                     "how long",
			`{"command":"unblock","key":{"uid":"u"}}`:                                                "reason",
			`{"command":"unblok","key":{"uid":"u"},"reason":"r"}`:                                    "there is no command",
			`{"command":"unblock","key":{"user":"u"},"reason":"r"}`:                                  "dimensions are",
			`{"command":"unblock","key":{"ip":"1.2.3"},"reason":"r"}`:                                "not an address",
			`{"command":"unblock","key":{` + longKey() + `},"reason":"r"}`:                           "the key is too long",
			`{"command":"unblock","reason":"r"}`:                                                     "needs a key",
			`{"command":"block","key":{"uid":"u"},"for":"tomorrow","reason":"r"}`:                    "tomorrow",
			`{"command":"block","key":{"uid":"u"},"for":"1y","reason":"r"}`:                          "at most",
			`{"command":"forget","key":{"uid":"u"},"rule":"x","reason":"r"}`:                         "names no rule",
			`{"command":"unblock","key":{"uid":"u"},"for":"1h","reason":"r"}`:                        "has no end",
			`{"command":"unblock","key":{"uid":"u"},"reason":"r","why":"x"}`:                         "unknown field",
			`{"command":"unblock","key":{"uid":"u"},"reason":"` + strings.Repeat("x", 70_000) + `"}`: "too large",
		} {
			if status, answer := post(0, body); status != http.StatusBadRequest || !strings.Contains(answer, want) {
				t.Errorf("%.80s: %d %s, want 400 and %q", body, status, answer, want)
			}
		}
	})
}

// longKey has more dimensions, each of the greatest length, than fit into a key.
func longKey() string {
	var dims []string
	for i := range 20 {
		dims = append(dims, fmt.Sprintf(`"attrs.%d":%q`, i, strings.Repeat("é", event.MaxText/2)))
	}
	return strings.Join(dims, ",")
}

// Blocked keys can be listed by rule, for operators who lift all its blocks.
func TestBlocked(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		m := r.begin(compile(t, yearly))
		for range 5 {
			for _, uid := range uids(10) {
				r.emit(hit(uid, "a"))
			}
		}
		r.emit(hit("free", "a"))
		list := func(rule string) int { return len(r.blockedList(m, rule, 0)) }
		eventually(t, "ten users are blocked", func() bool { return list("") == 10 })
		if _, err := m.Command(t.Context(), ask.Command{Name: "block", Key: uidKey("free"), For: time.Hour, Reason: "a test"}); err != nil {
			t.Fatal(err)
		}
		if a, b, c, d := list(""), list("per-year"), list(rules.ManualRule), list("nosuch"); a != 11 || b != 10 || c != 1 || d != 0 {
			t.Errorf("blocked are %d, %d, %d and %d, want 11, 10, 1 and 0", a, b, c, d)
		}
		for _, limit := range []int{1, 2, 3, 100} {
			if n := len(r.blockedList(m, "per-year", limit)); n != 10 {
				t.Errorf("in pages of %d there are %d, want 10", limit, n)
			}
		}
		for query, want := range map[string]int{"?partition=0&limit=10000": 200, "?partition=0&limit=0": 400, "?partition=0&limit=10001": 400, "?partition=0&limit=x": 400, "?partition=0&after=nobody": 200} {
			w := httptest.NewRecorder()
			m.ServeBlocked(w, httptest.NewRequest(http.MethodGet, "/v1/blocked"+query, nil))
			if w.Code != want {
				t.Errorf("%s: %d %s", query, w.Code, w.Body)
			}
		}
	})
}

// blockedList asks for all pages, and returns the keys' texts. Limit 0 sends no limit.
func (r *rig) blockedList(m *member, rule string, limit int) (keys []string) {
	r.t.Helper()
	for id := range rigPartitions {
		for after := ""; ; {
			q := url.Values{"partition": {strconv.Itoa(id)}}
			for name, value := range map[string]string{"rule": rule, "after": after} {
				if value != "" {
					q.Set(name, value)
				}
			}
			if limit > 0 {
				q.Set("limit", strconv.Itoa(limit))
			}
			w := httptest.NewRecorder()
			m.ServeBlocked(w, httptest.NewRequestWithContext(r.t.Context(), http.MethodGet, "/v1/blocked?"+q.Encode(), nil))
			if w.Code == http.StatusBadRequest && strings.Contains(w.Body.String(), "no rule") {
				return nil
			}
			var reply api.Blocked
			if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil || w.Code != http.StatusOK || limit > 0 && len(reply.Keys) > limit || len(reply.Keys) > 1000 {
				r.t.Fatalf("%d %v: %d keys: %.200s", w.Code, err, len(reply.Keys), w.Body)
			}
			for _, b := range reply.Keys {
				key := keytext.FormatMap(b.Key)
				if slices.Contains(keys, key) {
					r.t.Fatalf("%s came twice", key)
				}
				keys = append(keys, key)
			}
			if after = reply.Next; after == "" {
				break
			}
		}
	}
	return keys
}

// A fuse puts its rule into shadow mode, and records that in the audit.
func TestAFuseBlows(t *testing.T) {
	inMemoryShows(t, "fuse: the rule goes to shadow there by itself, says so (log, metric, audit)", func(t *testing.T, r *rig) {
		r.begin(compile(t, strings.Replace(yearly, "limit: 5", "limit: 1\n      fuse: 5%", 1)))
		var events []*event.Event
		for _, uid := range uids(400) {
			events = append(events, hit(uid, "a"))
		}
		r.emit(events...)
		enforced, shadow := 0, 0
		eventually(t, "all are over the limit", func() bool {
			enforced, shadow = 0, 0
			for _, v := range r.verdicts() {
				if v.Mode == verdict.Shadow {
					shadow++
				} else {
					enforced++
				}
			}
			return enforced+shadow == 400
		})
		if enforced > rigPartitions*20 || shadow == 0 {
			t.Errorf("%d are blocked, %d in shadow mode; the fuse is 5%%, and 20 keys a partition", enforced, shadow)
		}
		fuses := 0
		eventually(t, "the audit says so", func() bool {
			fuses = 0
			for p := range int32(rigPartitions) {
				for _, rec := range r.records(r.names.Audit, p) {
					if strings.HasPrefix(string(rec.Value), `{"type":"fuse"`) && strings.Contains(string(rec.Value), `"rule":"per-year"`) {
						fuses++
					}
				}
			}
			return fuses == rigPartitions
		})
	})
}
