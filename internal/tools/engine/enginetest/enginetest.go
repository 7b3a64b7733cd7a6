// Package enginetest is what tests of the engine, and of what feeds it, share: rules, traffic, and what
// comes of it.
package enginetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/engine"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// ShopRules are rules of many kinds.
const ShopRules = `
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

// Set is ShopRules, compiled.
func Set(t testing.TB) *rules.Set {
	t.Helper()
	set, err := rules.Compile("shop.yaml", []byte(ShopRules))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// Traffic is events of a few users over some hours, ids and all, in the order of their times.
func Traffic(seed uint64, n int) []event.Event {
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

// Counted applies events and returns the last verdict of every limit and key, and where each
// key stands at the end.
func Counted(e *engine.Engine, events []event.Event) (map[string]verdict.Verdict, []rules.Explanation) {
	var out engine.Outcome
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

// IgnoreSeq compares verdicts without their Seq.
var IgnoreSeq = cmpopts.IgnoreFields(verdict.Verdict{}, "Seq")
