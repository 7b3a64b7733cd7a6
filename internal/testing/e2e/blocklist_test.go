package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// compareRedis compares the blocklist with the verdict topic, byte for byte, once Redis has
// all of it.
func (r *rig) compareRedis(topic published) {
	r.t.Helper()
	hash := r.shardKey("verdicts")
	for p := range r.partitions {
		end := r.end(r.names.Verdicts, p)
		eventually(r.t, fmt.Sprintf("Redis has verdict partition %d", p), func() bool {
			text, _ := r.redis.HGet(r.t.Context(), hash, "\x00reached:"+strconv.Itoa(int(p))).Result()
			reached, _ := strconv.ParseInt(text, 10, 64)
			return reached >= end
		})
	}
	all, err := r.redis.HGetAll(r.t.Context(), hash).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	d := differencesOf("Redis")
	for key, want := range topic.last {
		d.compared()
		if all[key] != string(want) {
			d.add("%s is %s, not %s", key, all[key], want)
		}
	}
	now := event.FromTime(time.Now())
	for key, want := range topic.left {
		if v, err := verdict.Parse([]byte(all[key])); want.Until > now+nearly && want.Until > want.Since && (err != nil || asModel(v) != asModel(want)) {
			d.add("%s is %s, not %s", key, all[key], asModel(want))
		}
	}
	for key, v := range all {
		_, left := topic.left[key]
		if topic.last[key] == nil && !left && !strings.HasPrefix(key, "\x00") {
			d.add("%s is %s, the topic has none", key, v)
		}
	}
	d.report(r.t)
}

// compareTable compares an enforcer's table with the latest verdicts: those in force, and no
// others. Verdicts that end within moments of now may be either.
func compareTable(t *testing.T, p *Process, last map[string]verdict.Verdict) {
	t.Helper()
	settle(t, p, last)
	now := event.FromTime(time.Now())
	got := list(t, p)
	d := differencesOf("the enforcer's table")
	for key, want := range last {
		if near(now, want.Until) {
			continue
		}
		d.compared()
		v, there := got[key]
		inForce := want.State != verdict.Clear && want.Since <= now && now < want.Until
		switch {
		case there != inForce:
			d.add("%s: in the table %v, in force %v: %s", key, there, inForce, asModel(want))
		case there && asModel(v) != asModel(want):
			d.add("%s is %s, not %s", key, asModel(v), asModel(want))
		}
	}
	for key, v := range got {
		if _, known := last[key]; !known {
			d.add("%s is %s, the model has none", key, asModel(v))
		}
	}
	d.report(t)
}

func near(a, b event.Micros) bool { return max(a-b, b-a) < 10*event.Second }

// settle waits until the table has as many entries as are in force; that they are the right
// ones is for others to say, and that it is so many in the end too.
func settle(t *testing.T, p *Process, last map[string]verdict.Verdict) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		now, want := event.FromTime(time.Now()), 0
		for _, v := range last {
			if v.State != verdict.Clear && v.Since <= now && now < v.Until {
				want++
			}
		}
		if len(list(t, p)) == want {
			return
		}
	}
}

// list reads GET /v1/blocklist, page by page.
func list(t *testing.T, p *Process) map[string]verdict.Verdict {
	t.Helper()
	out := map[string]verdict.Verdict{}
	for cursor := ""; ; {
		status, body := get(p.url("/v1/blocklist?limit=1000&cursor=" + url.QueryEscape(cursor)))
		var page struct {
			Verdicts []verdict.Verdict `json:"verdicts"`
			Cursor   string            `json:"cursor"`
		}
		if err := json.Unmarshal(body, &page); status != http.StatusOK || err != nil {
			t.Fatalf("blocklist: %d %v %.200s", status, err, body)
		}
		for _, v := range page.Verdicts {
			out[string(verdict.AppendRecordKey(nil, &v))] = v
		}
		if cursor = page.Cursor; cursor == "" {
			return out
		}
	}
}

// check asks whether uids may use an API, in batches.
func check(t *testing.T, p *Process, may string, uids []string) []api.Decision {
	t.Helper()
	var out []api.Decision
	for len(uids) > 0 {
		n := min(len(uids), 1000)
		checks := make([]map[string]string, n)
		for i, uid := range uids[:n] {
			checks[i] = map[string]string{"uid": uid, "api": may}
		}
		uids = uids[n:]
		body, err := json.Marshal(map[string]any{"checks": checks})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Post(p.url("/v1/check/batch"), "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var reply api.Decisions
		err = json.NewDecoder(resp.Body).Decode(&reply)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || len(reply.Results) != n {
			t.Fatalf("check/batch: %d, %d results, %v", resp.StatusCode, len(reply.Results), err)
		}
		out = append(out, reply.Results...)
	}
	return out
}

// compareChecks asks the decision server for every uid of the model.
func compareChecks(t *testing.T, p *Process, m *model, last map[string]verdict.Verdict, api string) {
	t.Helper()
	denied, edge, uids := map[string]bool{}, map[string]bool{}, []string{}
	now := event.FromTime(time.Now())
	for _, k := range m.states {
		if len(k.dims) == 1 && k.dims[0].Name == "uid" {
			uids = append(uids, k.dims[0].Value)
		}
	}
	for _, v := range last {
		if v.State != verdict.Block || !v.Covers(api) {
			continue
		}
		for _, uid := range whoHas(v.Key, api, uids) {
			edge[uid] = edge[uid] || near(now, v.Until)
			denied[uid] = denied[uid] || now < v.Until
		}
	}
	d := differencesOf("checks of " + api)
	for i, a := range check(t, p, api, uids) {
		if d.compared(); a.Allowed == denied[uids[i]] && !edge[uids[i]] {
			d.add("uid %s: allowed %v by %q", uids[i], a.Allowed, a.Rule)
		}
	}
	d.report(t)
	maps.DeleteFunc(denied, func(_ string, is bool) bool { return !is })
	t.Logf("%d of %d uids are denied %s", len(denied), len(uids), api)
}

// whoHas returns the uids for whom a check with nothing but the uid and the API finds a key.
func whoHas(key []event.Dim, api string, uids []string) []string {
	for _, d := range key {
		switch d.Name {
		case "uid":
			uids = []string{d.Value}
		case "api":
			if d.Value != api {
				return nil
			}
		case "all":
		default:
			return nil
		}
	}
	return uids
}

// lastPublished is the model's latest verdicts; for keys whose events have no fixed order,
// the topic's.
func (m *model) lastPublished(r *rig) map[string]verdict.Verdict {
	r.t.Helper()
	out := m.last()
	for key := range out {
		if text, _, _ := strings.Cut(key, "|"); m.states[text].mixed {
			delete(out, key)
		}
	}
	for key, all := range readVerdicts(r).all {
		if text, _, _ := strings.Cut(key, "|"); m.states[text] != nil && m.states[text].mixed {
			out[key] = all[len(all)-1]
		}
	}
	return out
}
