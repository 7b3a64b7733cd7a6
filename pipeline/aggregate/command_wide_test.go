package aggregate

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/api"
	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/keytext"
	"github.com/tallygate/tallygate/internal/testing/apitest"
	"github.com/tallygate/tallygate/verdict"
)

// twoInstances serve the API.
type twoInstances struct {
	*rig
	members []*member
	servers []*httptest.Server
}

func (r *rig) pair(rules string) *twoInstances {
	two := &twoInstances{rig: r, members: make([]*member, 2), servers: make([]*httptest.Server, 2)}
	for i := range two.members {
		mux := http.NewServeMux()
		for pattern, serve := range map[string]func(*member) http.HandlerFunc{
			"POST /v1/commands":  func(m *member) http.HandlerFunc { return m.ServeCommand },
			"GET /v1/explain":    func(m *member) http.HandlerFunc { return m.ServeExplain },
			"GET /v1/exemptions": func(m *member) http.HandlerFunc { return m.ServeExemptions },
			"GET /v1/hot-keys":   func(m *member) http.HandlerFunc { return m.ServeHotKeys },
		} {
			mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) { serve(two.members[i])(w, req) })
		}
		two.servers[i] = r.serve(apitest.Open(r.t, apidocs.Aggregator).Handler(r.t, mux))
		two.members[i] = r.half(i, compile(r.t, rules), func(c *Config) { c.Advertise = two.servers[i].Listener.Addr().String() })
	}
	r.shared(two.members...)
	return two
}

// ask asks either instance, and reads its answer; its status otherwise.
func (two *twoInstances) ask(i int, method, path, body string, into any) (status int, text string) {
	two.t.Helper()
	req, err := http.NewRequestWithContext(two.t.Context(), method, two.servers[i%2].URL+path, strings.NewReader(body))
	if err != nil {
		two.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := two.servers[i%2].Client().Do(req)
	if err != nil {
		two.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		two.t.Fatal(err)
	}
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(b, into); err != nil {
			two.t.Fatalf("%s: %v", b, err)
		}
	}
	return resp.StatusCode, string(b)
}

// command gives one until it is carried out: the group may be changing still.
func (two *twoInstances) command(i int, body string) (done api.Commanded) {
	two.t.Helper()
	said := ""
	eventually(two.t, body+" is carried out", func() bool {
		var status int
		done = api.Commanded{}
		status, said = two.ask(i, http.MethodPost, "/v1/commands", body, &done)
		return status == http.StatusOK
	})
	if done.ID == "" {
		two.t.Fatalf("%s answers %s", body, said)
	}
	return done
}

func keysOf(list []map[string]string) (texts []string) {
	for _, key := range list {
		texts = append(texts, keytext.FormatMap(key))
	}
	slices.Sort(texts)
	return texts
}

func ended(vs []verdict.Verdict) (texts []string) {
	for _, v := range vs {
		if v.State == verdict.Clear {
			texts = append(texts, ruleOf(v.Rule)+" "+keytext.Format(v.Key))
		}
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

// unblock uid=X answered that nothing was in force, while X stayed blocked by a rule whose key has another
// dimension; explain said that no rule counts.
func TestCommandsReachTheKeysThatContainTheirs(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		two := r.pair(byCampaign)
		for i, uid := range uids(4) {
			r.emit(shown(uid, "a", "a", "a", "b", "b", "b", "c")...)
			name := func(key string) string { return strings.ReplaceAll(key, "U", uid) }
			blocked := []string{name("attrs.campaign=a uid=U"), name("attrs.campaign=b uid=U")}
			eventually(t, uid+" is blocked for two campaigns", func() bool {
				return len(r.inForceOn("attrs.campaign=a&uid="+uid)) == 2 && len(r.inForceOn("attrs.campaign=b&uid="+uid)) == 2 && len(r.inForce(uid)) == 1
			})
			var why api.Explained
			if status, said := two.ask(i, http.MethodGet, "/v1/explain?uid="+uid, "", &why); status != http.StatusOK {
				t.Fatal(said)
			}
			var others []string
			for _, o := range why.Others {
				others = append(others, keytext.FormatMap(o.Key))
			}
			if want := append(slices.Clone(blocked), name("attrs.campaign=c uid=U")); !slices.Equal(others, want) || why.More != 0 || len(why.Missing) > 0 || why.Rules[0].Count != 7*event.One {
				t.Errorf("of %s are explained %q, and %d more; %v", uid, others, why.More, why.Missing)
			}
			if two.ask(i+1, http.MethodGet, "/v1/explain?limit=1&uid="+uid, "", &why); len(why.Others) != 1 || why.More != 2 {
				t.Errorf("with a limit of 1 there are %d, and %d more", len(why.Others), why.More)
			}
			var exact api.Explained
			if two.ask(i, http.MethodGet, "/v1/explain?exact=true&uid="+uid, "", &exact); len(exact.Others) > 0 || len(exact.Rules) == 0 {
				t.Errorf("exactly %s is %+v", uid, exact)
			}

			only := two.command(i, name(`{"command":"unblock","key":"uid=U","exact":true,"reason":"a test"}`))
			if got := ended(only.Verdicts); !slices.Equal(got, []string{name("per-year uid=U")}) {
				t.Errorf("unblock of the key alone ended %q", got)
			}
			all := two.command(i+1, name(`{"command":"unblock","key":{"uid":"U"},"rule":"per-campaign","reason":"a test"}`))
			if got, want := ended(all.Verdicts), []string{"per-campaign " + blocked[0], "per-campaign " + blocked[1]}; !slices.Equal(got, want) {
				t.Errorf("unblock ended %q, want %q", got, want)
			}
			if got := keysOf(all.Each); !slices.Equal(got, append(slices.Clone(blocked), "uid="+uid)) { // and not the one that is not blocked
				t.Errorf("unblock reached %q", got)
			}
			reset := two.command(i, name(`{"command":"reset","key":{"uid":"U"},"reason":"a test"}`))
			if got := keysOf(reset.Each); reset.Keys != 4 || len(got) != 4 {
				t.Errorf("reset reached %d: %q", reset.Keys, got)
			}
			for _, m := range two.members {
				if e := r.standing(m, campaignKey(uid, "c"), "per-campaign"); e.Count > 0 {
					t.Errorf("after reset there is %v", e.Count)
				}
			}
		}
	})
}

// Keys that contain no uid are in all partitions: each owner is asked.
func TestCommandsWithoutAUIDReachAllPartitions(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		two := r.pair(byCampaign)
		users := uids(6)
		for _, uid := range users {
			r.emit(shown(uid, "a", "a", "a", "b")...)
		}
		eventually(t, "all are blocked", func() bool {
			return !slices.ContainsFunc(users, func(uid string) bool { return len(r.inForceOn("attrs.campaign=a&uid="+uid)) != 2 })
		})
		for i := range 2 {
			var why api.Explained
			if status, said := two.ask(i, http.MethodGet, "/v1/explain?attrs.campaign=a&limit=4", "", &why); status != http.StatusOK ||
				len(why.Others) != 4 || why.More != 2 || why.Rules[0].Rule != "by-shop" || why.Rules[0].Count != 18*event.One || len(why.Missing) > 0 {
				t.Errorf("%d %s", status, said)
			}
		}
		done := two.command(1, `{"command":"unblock","key":"attrs.campaign=a","reason":"a test"}`)
		if got := ended(done.Verdicts); len(got) != len(users) {
			t.Errorf("unblock ended %q", got)
		}
		done = two.command(0, `{"command":"reset","key":{"attrs.campaign":"a"},"rule":"per-campaign","reason":"a test"}`)
		if got := keysOf(done.Each); done.Keys != len(users)+1 || got[0] != "attrs.campaign=a" {
			t.Errorf("reset reached %d: %q", done.Keys, got)
		}
		for _, uid := range users {
			for _, m := range two.members {
				if e := r.standing(m, campaignKey(uid, "a"), "per-campaign"); e.Count > 0 {
					t.Errorf("after reset %s has counted %v", uid, e.Count)
				}
				if e := r.standing(m, campaignKey(uid, "b"), "per-campaign"); e.Count != event.One && e.Count != -1 {
					t.Errorf("of the other campaign %s has counted %v", uid, e.Count)
				}
			}
		}
		ids := map[string]bool{}
		for _, id := range r.commandIDs("reset") {
			ids[id] = true
		}
		if len(ids) != 1 || !ids[done.ID] {
			t.Errorf("in the audit the command has the ids %v, want %s", ids, done.ID)
		}
		if status, said := two.ask(0, http.MethodPost, "/v1/commands", `{"command":"unblock","key":"attrs.campaign=a","rule":"nosuch","reason":"a test"}`, nil); status != http.StatusBadRequest || !strings.Contains(said, `called \"nosuch\"`) {
			t.Errorf("%d %s", status, said)
		}
		if status, said := two.ask(0, http.MethodPost, "/v1/commands", `{"command":"unblock","key":"attrs.campaign=a","partition":1,"reason":"a test"}`, nil); status != http.StatusBadRequest {
			t.Errorf("%d %s", status, said)
		}
	})
}

// commandIDs are the ids of a command's entries in the audit.
func (r *rig) commandIDs(command string) (ids []string) {
	for p := range int32(rigPartitions) {
		for _, rec := range r.records(r.names.Audit, p) {
			var line struct{ Type, ID, Command string }
			if err := json.Unmarshal(rec.Value, &line); err != nil {
				r.t.Fatal(err)
			}
			if line.Type == "command" && line.Command == command {
				ids = append(ids, line.ID)
			}
		}
	}
	return ids
}

// A batch had two entries in the audit for each key, and took as long as so many commands.
func TestABatchIsOneEntryInTheAudit(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		two := r.pair(yearly)
		byPartition := map[int32][]string{}
		users := uids(40)
		for _, uid := range users {
			r.emit(hit(uid, "a"), hit(uid, "a"), hit(uid, "a"), hit(uid, "a"), hit(uid, "a"))
			id := event.Partition([]byte(uid), rigPartitions)
			byPartition[id] = append(byPartition[id], fmt.Sprintf("%q", "uid="+uid))
		}
		eventually(t, "all are blocked", func() bool {
			return !slices.ContainsFunc(users, func(uid string) bool { return len(r.inForce(uid)) != 1 })
		})
		n, i := 0, 0
		for _, keys := range byPartition {
			done := two.command(i, `{"command":"unblock","keys":[`+strings.Join(keys, ",")+`],"reason":"a test"}`)
			n += len(ended(done.Verdicts))
			i++
		}
		if n != len(users) {
			t.Errorf("%d were unblocked, want %d", n, len(users))
		}
		if got := len(r.commandIDs("unblock")); got != len(byPartition) {
			t.Errorf("in the audit are %d commands, want %d", got, len(byPartition))
		}
		mixed := `{"command":"unblock","keys":["uid=` + users[0] + `"],"key":"uid=1","reason":"a test"}`
		for body, want := range map[string]string{
			mixed: "in place of key",
			`{"command":"reset","keys":["uid=1"],"reason":"a test"}`:                                                          "keys are for unblock",
			`{"command":"unblock","keys":[{}],"reason":"a test"}`:                                                             "no dimension",
			`{"command":"unblock","keys":["uid"],"reason":"a test"}`:                                                          "is not a key",
			`{"command":"unblock","keys":["uid=u1","uid=u2","uid=u3","uid=u4","uid=u5","uid=u6","uid=u7"],"reason":"a test"}`: "send a command for each",
		} {
			if status, said := two.ask(0, http.MethodPost, "/v1/commands", body, nil); status != http.StatusBadRequest || !strings.Contains(said, want) {
				t.Errorf("%s: %d %s, want %q", body, status, said, want)
			}
		}
	})
}

// Exemptions could not be listed, and nothing said what made a key exempt, why and until when.
func TestExemptionsAreTold(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		two := r.pair(strings.Replace(byCampaign, "    - name: by-shop\n", "    - name: by-shop\n      exempt: [{attrs.campaign: own, reason: our own}]\n", 1))
		done := two.command(0, `{"command":"exempt","key":"uid=u1","for":"1h","reason":"load test","by":"alice"}`)
		if len(done.Exemptions) != 1 || done.Exemptions[0].Reason != "load test" || done.Exemptions[0].By != "alice" || done.Ended != 0 {
			t.Errorf("after exempt there holds %+v", done)
		}
		two.command(1, `{"command":"exempt","key":"attrs.campaign=own","for":"2h","rule":"by-shop","reason":"twice"}`)
		r.emit(shown("u1", "own")...)
		for i := range 2 {
			var list api.Exemptions
			eventually(t, "all partitions answer", func() bool {
				list = api.Exemptions{}
				status, _ := two.ask(i, http.MethodGet, "/v1/exemptions", "", &list)
				return status == http.StatusOK && len(list.Missing) == 0
			})
			var texts []string
			for _, e := range list.Exemptions {
				texts = append(texts, fmt.Sprintf("%s %s %v %s %v", e.From, keytext.FormatMap(e.Key), e.Rules, e.Reason, e.Until == event.NoTime))
			}
			want := []string{"command attrs.campaign=own [by-shop] twice false", "command uid=u1 [] load test false", "rules attrs.campaign=own [by-shop] our own true"}
			if !slices.Equal(texts, want) {
				t.Errorf("listed are %q, want %q", texts, want)
			}
			if two.ask(i, http.MethodGet, "/v1/exemptions?uid=u1", "", &list); len(list.Exemptions) != 1 {
				t.Errorf("of u1 are listed %+v", list.Exemptions)
			}
			var why api.Explained
			if two.ask(i, http.MethodGet, "/v1/explain?uid=u1&attrs.campaign=own", "", &why); len(why.Rules) != 1 || len(why.Rules[0].ExemptBy) != 1 || why.Rules[0].ExemptBy[0].Reason != "load test" {
				t.Errorf("the key of u1 is explained by %+v", why)
			}
			if two.ask(i, http.MethodGet, "/v1/explain?exact=true&attrs.campaign=own", "", &why); len(why.Rules) != 1 || len(why.Rules[0].ExemptBy) != 2 {
				t.Errorf("the campaign is explained by %+v", why.Rules)
			}
		}
		if done := two.command(1, `{"command":"exempt","key":"uid=u1","for":"0","reason":"over"}`); done.Ended != 1 || len(done.Exemptions) != 0 {
			t.Errorf("the end of an exemption: %+v", done)
		}
		if done := two.command(0, `{"command":"exempt","key":"uid=u1","for":"0","reason":"over"}`); done.Ended != 0 {
			t.Errorf("the end of no exemption: %+v", done)
		}
	})
}
