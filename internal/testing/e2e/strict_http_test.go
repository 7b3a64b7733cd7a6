package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
)

// wished is what a client sees of POST /v1/admit.
type wished struct {
	Admitted, Ended, Emitted bool
	InDoubt                  bool `json:"in_doubt"`
	Permit, Token, Reason    string
}

// wishFor sends a client's question.
func wishFor(t *testing.T, p *Process, path, body string) (a wished) {
	t.Helper()
	resp, err := client.Post(p.url(path), "application/json", bytes.NewReader([]byte(body)))
	if err != nil {
		t.Error(err)
		return a
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s %s: %d %v %+v", path, body, resp.StatusCode, err, a)
	}
	return a
}

// TestStrictLimitsOverHTTP: 16 clients want ten times what a strict limit allows, through two decision
// servers, and exactly the limit is admitted. Permits end at the other instance than the one that granted
// them, which emits their events: each counts once.
func TestStrictLimitsOverHTTP(t *testing.T) {
	t.Parallel()
	servers.Nightly(t, "strict")
	const limit, clients = 200, 16
	r := newRig(t, fmt.Sprintf("    - {name: coupons, match: {api: coupon.redeem, outcome: success}, limit: %d, per: 1h, window: tumbling, strict: {hold: 1m}}\n"+
		"    - {name: all, match: {api: coupon.redeem}, limit: 1M, per: 365d, window: tumbling, then: {block: 1h}}\n", limit))
	a := r.aggregator("a").Start().Ready()
	var servers [2]*Process
	for i := range servers {
		servers[i] = newProcess(t, fmt.Sprint("enforcer ", i), program(t, "enforcer"), "--redis", r.redisAddr, "--prefix", r.prefix, "--grpc-listen", "none",
			"--emit-admitted", "--kafka", r.brokers[0]).Start().Ready()
	}
	const wish = `{"uid": "42", "api": "coupon.redeem"}`
	eventually(t, "both may ask for permits", func() bool {
		for i, s := range servers {
			got := wishFor(t, s, "/v1/admit", wish)
			if !got.Admitted || got.InDoubt || got.Permit == "" {
				return false
			}
			wishFor(t, servers[1-i], "/v1/cancel", `{"token": "`+got.Token+`"}`)
		}
		return true
	})
	var admitted, given atomic.Int64
	var all sync.WaitGroup
	for n := range clients {
		all.Go(func() {
			for i := range limit * 10 / clients {
				granting, ending := servers[(n+i)%2], servers[(n+i+1)%2]
				got := wishFor(t, granting, "/v1/admit", wish)
				switch {
				case got.InDoubt:
					t.Errorf("in doubt: %s", got.Reason)
				case !got.Admitted:
				case i%5 == 4: // it does nothing after all
					wishFor(t, ending, "/v1/cancel", `{"token": "`+got.Token+`"}`)
					given.Add(1)
				default:
					if !wishFor(t, ending, "/v1/done", `{"token": "`+got.Token+`", "outcome": "success"}`).Emitted {
						t.Error("no event")
					}
					admitted.Add(1)
				}
			}
		})
	}
	all.Wait()
	eventually(t, "what was given back is there again, and no more", func() bool {
		got := wishFor(t, servers[0], "/v1/admit", wish)
		if got.Admitted {
			wishFor(t, servers[1], "/v1/done", `{"token": "`+got.Token+`", "outcome": "success"}`)
			admitted.Add(1)
		}
		return admitted.Load() >= limit
	})
	if got := wishFor(t, servers[1], "/v1/admit", wish); got.Admitted || admitted.Load() != limit {
		t.Errorf("%d were admitted, and then %v; the limit is %d", admitted.Load(), got, limit)
	}
	t.Logf("%d admitted and done, %d given back", admitted.Load(), given.Load())
	for _, s := range servers {
		s.Stop()
	}
	r.caughtUp()
	eventually(t, "each event is counted once", func() bool {
		reply, err := explainKey(a, "uid=42")
		if err != nil {
			t.Fatal(err)
		}
		counted := map[string]event.Decimal{}
		for i := range reply.list {
			counted[reply.list[i].Rule] = reply.list[i].Count
		}
		return counted["coupons"] == limit*event.One && counted["all"] == limit*event.One
	})
	for _, name := range []string{"tallygate_strict_lost_permits_total", "tallygate_unpermitted_total"} {
		for line := range strings.Lines(scraped(a)) {
			if strings.HasPrefix(line, name) && !strings.HasSuffix(strings.TrimSpace(line), " 0") {
				t.Errorf("%s", line)
			}
		}
	}
}

// scraped are a program's metrics.
func scraped(p *Process) string {
	_, body := get("http://" + p.metrics + "/metrics")
	return string(body)
}
