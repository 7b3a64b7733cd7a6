package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tallygate/tallygate/internal/accesslog"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

const shopRules = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - name: search
      match: {api: search.*}
      limit: 5
      per: 1m
      window: sliding
      then: {block: 2m}
    - name: many
      match: {api: "*"}
      limit: 100
      per: 1h
      window: sliding
      then: {block: until-reset}
    - name: orders
      match: {api: order.create}
      limit: 3
      per: day
      window: calendar
      timezone: Asia/Shanghai
      then: {block: until-reset}
    - name: away
      match: {api: home}
      when: not inNetwork(ip, "203.0.113.0/31", "192.0.2.0/24")
      limit: 6
      per: 30m
      exempt: [{uid: u3, reason: a friend}]
      then: {block: 5m}
    - name: in-a-row
      match: {api: search.*}
      reset_on: {api: login, clear: true}
      limit: 3
      per: 10m
      then: {escalate: [1m, 5m], forget: 1h}
    - name: bought
      match: {api: home}
      limit: {from: attrs.quota, else: 4, most: 9}
      per: 20m
      then: {block: 2m} # the end of a quota moves with each limit, and live that is published by time
    - name: from-one-address
      key: ip
      match: {api: login}
      limit: 4
      per: 10m
      window: tumbling
      then: {block: 5m}
`

func compiled(t testing.TB) *rules.Set {
	set, err := rules.Compile("shop.yaml", []byte(shopRules))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// traffic is events of a few users over some hours, ids and all, in the order of their times.
func traffic(seed uint64, n int) []event.Event {
	r := rand.New(rand.NewPCG(seed, 1))
	at, _ := event.ParseMicros("2026-11-21T10:00:00Z")
	apis := []string{"search.query", "search.suggest", "order.create", "login", "home"}
	out := make([]event.Event, n)
	for i := range out {
		at += event.Micros(r.Int64N(int64(4 * event.Second)))
		out[i] = event.Event{
			ID: fmt.Sprint("e", i), UID: fmt.Sprint("u", r.IntN(9)), API: apis[r.IntN(len(apis))],
			Cost: event.One, Time: at, BrokerTime: event.NoTime,
		}
		if quota := r.IntN(12); quota > 0 {
			out[i].Attrs = []event.Attr{{Name: "quota", Value: event.NumberValue(event.Decimal(quota) * event.One)}}
		}
		_ = out[i].IP.UnmarshalText(fmt.Appendf(nil, "203.0.113.%d", r.IntN(4)))
	}
	return out
}

// counted applies events and returns the last verdict of every limit and key, and where each
// key stands at the end.
func counted(e *Engine, events []event.Event) (map[string]verdict.Verdict, []rules.Explanation) {
	var out Outcome
	var end event.Micros
	for i := range events {
		e.Apply(&events[i], events[i].BrokerTime, verdict.Cause{}, &out)
		end = max(end, events[i].Time)
	}
	last := map[string]verdict.Verdict{}
	for h := range e.Held() {
		last[h.Key+"|"+h.Rule] = h.Verdict
	}
	var stand []rules.Explanation
	for u := range 9 {
		stand = append(stand, e.Explain([]event.Dim{{Name: "uid", Value: fmt.Sprint("u", u)}}, "", end)...)
	}
	return last, stand
}

var ignoreSeq = cmpopts.IgnoreFields(verdict.Verdict{}, "Seq")

// An event counts as covered by the verdicts that are in force for it, whatever the rule counts.
func TestCovered(t *testing.T) {
	set, err := rules.Compile("ads.yaml", []byte(`
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: ads}
spec:
  rules:
    - name: shown
      match: {api: ad.shown}
      limit: 2
      per: 1h
      window: tumbling
      then: {block: until-reset, apis: [ad.select]}
`))
	if err != nil {
		t.Fatal(err)
	}
	e := New(set)
	var out Outcome
	start, _ := event.ParseMicros("2026-11-21T10:00:00Z")
	for i, api := range []string{"ad.shown", "ad.select", "ad.shown", "ad.select", "ad.shown", "ad.select"} {
		e.Apply(&event.Event{UID: "u", API: api, Cost: event.One, Time: start + event.Micros(i)*event.Minute, BrokerTime: event.NoTime}, event.NoTime, verdict.Cause{}, &out)
	}
	for h := range e.Held() {
		if h.Covered != 2 || h.Issued != 1 {
			t.Errorf("%d events are covered by %d verdicts, want 2 by 1", h.Covered, h.Issued)
		}
	}
	who := event.Event{UID: "u", API: "ad.select"}
	if got := e.Decide(&who, start+10*event.Minute); len(got) != 1 || got[0].Rule != "shown" {
		t.Errorf("ten minutes on %v is in force, want shown", got)
	}
	if got := e.Decide(&who, start+event.Hour); len(got) != 0 {
		t.Errorf("an hour on %v is in force, want nothing", got)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	src, err := Files([]string{"-"}, strings.NewReader(""), accesslog.Auto)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := src.Next(ctx); !errors.Is(err, io.EOF) {
		t.Errorf("reading after the end of the context: %v, want the end", err)
	}
}

// TestNoLevelsAreKept: nobody publishes them, and a copy of each key would wait until the end.
func TestNoLevelsAreKept(t *testing.T) {
	set, err := rules.Compile("shop.yaml", []byte(strings.Replace(shopRules, "limit: 100\n", "limit: 100\n      strict: true\n", 1)))
	if err != nil {
		t.Fatal(err)
	}
	e := New(set)
	var out Outcome
	for i := range 100 {
		e.Apply(&event.Event{API: "a", UID: fmt.Sprint("u", i), Cost: event.One}, event.Second, verdict.Cause{Offset: int64(i)}, &out)
	}
	if e.Keys() != 100 || e.shard.LevelsWaiting() {
		t.Errorf("%d keys; levels wait: %v", e.Keys(), e.shard.LevelsWaiting())
	}
}
