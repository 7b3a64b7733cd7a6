package decision_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/admit/publish"
)

const admitRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: test}
spec:
  rules:
    - {name: daily, public: messages, match: {api: sms.send}, limit: 3, per: 1h, strict: true}
    - {name: by-item, key: attrs.item, match: {api: sms.send}, limit: 2, per: 1h, strict: true}
    - {name: bytes, match: {api: upload}, count: {sum: attrs.bytes}, limit: 100, per: 1h, strict: true}
    - {name: bucket, match: {api: bucket}, window: bucket, limit: 10, per: 10s, burst: 4, strict: true}
    - {name: turns, match: {api: turn}, window: bucket, limit: 1, per: 300ms, burst: 1, strict: true, action: throttle}
    - {name: rare, match: {api: rare}, window: bucket, limit: 1, per: 1h, burst: 1, strict: true, action: throttle}
    - {name: exports, match: {api: export}, window: in-flight, limit: 1, strict: {hold: 2s}}
    - {name: here, match: {api: here}, window: in-flight, limit: 1, scope: instance}
    - {name: yearly, match: {api: yearly}, limit: 1, per: year, window: calendar, strict: true}
    - {name: both, match: {api: both}, limit: 9, per: 1h, strict: true}
    - {name: both-at-once, match: {api: both}, window: in-flight, limit: 1, strict: {hold: 1m}}
`

// permits are strict rules in a Redis that grants.
type permits struct {
	t    testing.TB
	addr string
}

// onEachRedis runs a test on the Redis in memory, and on a real one where there is one.
func onEachRedis(t *testing.T, test func(*testing.T, *permits)) {
	t.Run("miniredis", func(t *testing.T) {
		servers.Embedded(t)
		test(t, newPermits(t, miniredis.RunT(t).Addr()))
	})
	t.Run("redis", func(t *testing.T) { test(t, newPermits(t, servers.StartRedis(t).Addr())) })
}

func newPermits(t testing.TB, addr string) *permits {
	t.Helper()
	p := &permits{t, addr}
	shards := publish.OnRedis(p.client(), "t", 1, 2)
	text, err := json.Marshal(map[string]any{"format": 1, "file": "rules.yaml", "source": admitRules})
	if err != nil {
		t.Fatal(err)
	}
	if err := shards.PutRules(context.Background(), 1, text); err != nil {
		t.Fatal(err)
	}
	for partition := range int32(2) {
		apply := func(at int64, r protocol.Record) protocol.Applied {
			b := &protocol.Batch{Partition: partition, Of: 2, Start: at, Next: at + 1, Beat: event.FromTime(time.Now()), Records: []protocol.Record{r}}
			a, err := shards.Apply(context.Background(), b)
			if err != nil || !a.OK {
				t.Fatal(a, err)
			}
			return a
		}
		first := apply(0, protocol.Record{Version: 1})
		apply(1, protocol.Record{Grants: &protocol.Grants{Run: first.Run, Life: first.Life, Until: event.FromTime(time.Now()) + event.Hour}})
	}
	return p
}

func (p *permits) client() *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: p.addr, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	p.t.Cleanup(func() { _ = client.Close() })
	return client
}

// admitter returns one that runs, and knows the rules.
func (p *permits) admitter(change ...func(*admit.Config)) *admit.Admitter {
	p.t.Helper()
	cfg := admit.Config{Redis: p.client(), Prefix: "t", MaxDelay: -1, Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&cfg)
	}
	a, err := admit.New(cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	testrun.Start(p.t, a.Run)
	testrun.Eventually(p.t, "the rules are read", func() bool { return a.Stats().Version > 0 })
	return a
}

// server returns one that asks for permits.
func (p *permits) server(t *testing.T, change ...func(*admit.Config)) *rig {
	t.Helper()
	a := p.admitter(change...)
	return newRig(t, func(c *decision.Config) { c.Admit, c.MaxWait = a, 3*time.Second }).blocks()
}

// permit is a client's view of an answer of /v1/admit.
type permit struct {
	Admitted, Limited bool
	Permit, ID, Token string
	PermitAt          json.RawMessage `json:"permit_at"`
	Limit, Remaining  *event.Decimal
	RetryAfter        int64 `json:"retry_after"`
	Reset             int64
	Action, Rule      string
	Public, Reason    string
	Until             time.Time
	InDoubt           bool `json:"in_doubt"`
	Waited            int64
}

func (p *permit) most() event.Decimal { return known(p.Limit) }
func (p *permit) left() event.Decimal { return known(p.Remaining) }

// known is -1 for what the answer does not have.
func known(d *event.Decimal) event.Decimal {
	if d == nil {
		return -1
	}
	return *d
}

func (r *rig) send(path, body string) *http.Response {
	r.t.Helper()
	req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	return r.do(req)
}

func (r *rig) admit(body string) permit {
	r.t.Helper()
	resp := r.send("/v1/admit", body)
	if resp.StatusCode != http.StatusOK {
		wantProblem(r.t, body, resp, http.StatusOK, "")
		r.t.FailNow()
	}
	return decode[permit](r.t, resp)
}

// ended is a client's view of an answer of /v1/cancel and /v1/done.
type ended struct{ Ended, Emitted, Elsewhere bool }

func (r *rig) end(path, token string) ended {
	r.t.Helper()
	resp := r.send(path, `{"token": "`+token+`"}`)
	if resp.StatusCode != http.StatusOK {
		wantProblem(r.t, token, resp, http.StatusOK, "")
	}
	return decode[ended](r.t, resp)
}

// testRedis is the address of a Redis in memory.
func testRedis(t *testing.T) string {
	t.Helper()
	return miniredis.RunT(t).Addr()
}

func withAdmitter(a *admit.Admitter) func(*decision.Config) {
	return func(c *decision.Config) { c.Admit = a }
}
