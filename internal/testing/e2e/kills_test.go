package e2e

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// everything counts by windows that are still open when the test asks.
const everything = `
    - name: yearly
      match: {api: "*"}
      limit: 25
      per: year
      window: calendar
      timezone: Asia/Shanghai
      then: {block: until-reset}
    - name: yearly-utc
      match: {api: "*"}
      limit: 1G
      per: year
      window: calendar
      then: {block: until-reset}
    - name: bytes-utc
      match: {api: upload.*}
      count: {sum: attrs.bytes}
      limit: 1Gi
      per: year
      window: calendar
      then: {block: until-reset}
    - name: discounts-daily
      match: {api: order.create, outcome: success}
      when: attrs.discounted == true
      limit: 3
      per: day
      window: calendar
      timezone: Asia/Shanghai
      then: {block: until-reset}
    - name: search-combined
      match: {api: [search.query, search.suggest]}
      limit: 9
      per: 365d
      window: tumbling
      then: {block: 2h}
    - name: upload-bandwidth
      match: {api: upload.*}
      count: {sum: attrs.bytes}
      limit: 1MiB
      per: 2h
      then: {block: 1h}
    - name: hourly
      match: {api: "*"}
      limit: 70
      per: 1h
      window: sliding
      then: {block: until-reset}
    - name: exact
      match: {api: search.query}
      limit: 10
      per: 1h
      window: sliding
      then: {block: until-reset}
    - name: writes
      match: {api: {order.create: 5, order.update: 1}}
      limits:
        - {name: burst, limit: 10, per: 1s, window: tumbling}
        - {name: daily, limit: 40, per: 1d, window: tumbling}
      then: {block: until-reset}
    - name: campaigns
      key: [uid, attrs.campaign]
      match: {api: order.create}
      limit: 4
      per: year
      window: calendar
      then: {block: until-reset, apis: [ad.select]}
    - name: networks
      key: ip/64
      match: {api: "*"}
      limit: 90
      per: year
      window: calendar
      then: {block: until-reset}
    - name: network-bytes
      key: ip
      match: {api: upload.*}
      count: {sum: attrs.bytes}
      limit: 2MiB
      per: year
      window: calendar
      mode: shadow
      then: {block: until-reset}
`

// The main proof: 200,000 events, killed again and again, and in the end every counter,
// every verdict, Redis and an enforcer hold what one pass over the records gives.
func TestExactlyOnceThroughKills(t *testing.T) {
	servers.Nightly(t, "kills")
	t.Run("one", func(t *testing.T) {
		r := newRig(t, everything)
		exactlyOnce(r, r.aggregator("a", "--instance-id", "a"))
	})
	t.Run("two", func(t *testing.T) {
		r := newRig(t, everything)
		exactlyOnce(r, r.aggregator("a", "--instance-id", "a"), r.aggregator("b", "--session-timeout", "3s"))
	})
}

func exactlyOnce(r *rig, ps ...*Process) {
	t := r.t
	rnd := newRand(t)
	g := &traffic{rnd: rand.New(rand.NewPCG(rnd.Uint64(), 2)), uids: scaled(20_000)}
	enforcer := r.enforcerOf(ps)
	killed := make(chan struct{})
	emitted := inBackground(func() { r.emitSlowly(g, scaled(200_000), 60*time.Millisecond, killed, 1, 16, 300) })
	killRepeatedly(t, rnd, 5, ps)
	close(killed)
	emitted()
	for _, p := range ps {
		p.Ready()
	}
	r.caughtUp()

	m := newModel(r)
	if m.events < scaled(190_000) || len(m.issued) < scaled(5000) {
		t.Errorf("the model has %d events and %d verdicts: too few to prove anything", m.events, len(m.issued))
	}
	m.compareCounters(t, m.keys(), ps...)
	newNaive(r).compare(t, "yearly-utc", "bytes-utc", ps...)
	r.compareRedis(m.compareVerdicts(r))
	last := m.lastPublished(r)
	compareTable(t, enforcer, last)
	compareChecks(t, enforcer, m, last, "order.create")
	compareChecks(t, enforcer, m, last, "search.query")
	for _, p := range ps {
		if status := p.Stop(); status != 0 {
			t.Errorf("%s exits with %d after SIGTERM", p.name, status)
		}
	}
	ps[0].Start().Ready()
	m.compareCounters(t, m.keys()[:scaled(4000)], ps[0])
}

// enforcerOf starts the aggregators, then an enforcer.
func (r *rig) enforcerOf(ps []*Process) *Process {
	r.t.Helper()
	for _, p := range ps {
		p.Start()
	}
	for _, p := range ps {
		p.Ready()
	}
	return r.enforcer()
}

// killRepeatedly kills n times while all is well, and after every other restart once more,
// while that recovers.
func killRepeatedly(t *testing.T, rnd *rand.Rand, n int, ps []*Process) {
	t.Helper()
	for i := range n {
		p := ps[rnd.IntN(len(ps))]
		p.awaitReady()
		after := time.Duration(rnd.Int64N(int64(2500 * time.Millisecond)))
		time.Sleep(after)
		p.Kill()
		t.Logf("kill %d: %s, %v after it was ready", i+1, p.name, after.Round(time.Millisecond))
		p.Start()
		if i%2 == 0 {
			after = time.Duration(rnd.Int64N(int64(300 * time.Millisecond)))
			time.Sleep(after)
			p.Kill()
			t.Logf("kill %d again: %s, %v after its start", i+1, p.name, after.Round(time.Millisecond))
			p.Start()
		}
	}
}

// compare asks for every uid and compares two of its counts, of the rules that are named. It
// returns the uids that differ.
func (n *naive) compare(t *testing.T, costs, sums string, ps ...*Process) (differ map[string]bool) {
	t.Helper()
	differ = map[string]bool{}
	var mu sync.Mutex
	var uids []string
	for uid := range n.costs {
		uids = append(uids, uid)
	}
	d := differencesOf("plain sums of costs and bytes per uid")
	explain(t, uidKeys(uids...), func(key string, reply explainReply) {
		uid := uidOf(key)
		for _, e := range reply.list {
			var want int64
			switch e.Rule {
			case costs:
				want = n.costs[uid]
			case sums:
				want = n.bytes[uid]
			default:
				continue
			}
			d.compared()
			if got := e.Count.String(); got != fmt.Sprint(want) {
				d.add("uid %s has %s under %s, not %d", uid, got, e.Rule, want)
				mu.Lock()
				differ[uid] = true
				mu.Unlock()
			}
		}
	}, ps...)
	d.report(t)
	return differ
}
