package aggregator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit"
)

const explainedRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - {name: sms, match: {api: sms}, limit: 3, per: 1h, window: sliding, strict: true, then: {block: 5m}}
    - {name: searches, match: {api: search}, limit: 3, per: 1h, then: {block: 5m}}
    - {name: exports, match: {api: export}, limit: 2, window: in-flight, strict: {hold: 10m}}
    - {name: trial, match: {api: sms}, limit: 1, per: 1h, strict: true, mode: shadow}
`

// explanation holds the fields of an answer that the test reads.
type explanation struct {
	Strict *api.StrictState
	Rules  []struct {
		Rule, Window string
		Count        event.Decimal
		Strict       *api.StrictStanding
	}
}

// TestExplainStrictLimits: people see what is counted, what is under way, and whether permits are granted.
func TestExplainStrictLimits(t *testing.T) {
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) {
		servers.Embedded(t)
		explainStrict(t, "")
	})
	t.Run("redis", func(t *testing.T) { explainStrict(t, servers.StartRedis(t).Addr()) })
}

func explainStrict(t *testing.T, addr string) {
	p, client := strictProgram(t, explainedRules, addr)
	ask := func(query string) (e explanation) {
		resp, err := described(t, http.DefaultTransport).Get("http://" + p.HTTP.Addr().String() + "/v1/explain?" + query)
		if err != nil {
			return e
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			if err := json.NewDecoder(resp.Body).Decode(&e); err != nil {
				t.Fatal(err)
			}
		}
		return e
	}
	testrun.Eventually(t, "permits are granted", func() bool { s := ask("uid=1").Strict; return s != nil && s.Grants })
	admitter, err := admit.New(admit.Config{Redis: client, Prefix: "strict", Poll: 100 * time.Millisecond, Logger: p.Log})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, admitter.Run)
	permit := func(api string) (got *admit.Permit) {
		testrun.Eventually(t, "a permit for "+api, func() bool {
			got, err = admitter.Admit(t.Context(), admit.Request{API: api, Dims: []event.Dim{{Name: "uid", Value: "1"}}})
			return err == nil && got.Admitted && !got.InDoubt
		})
		return got
	}
	began := event.FromTime(time.Now())
	first := permit("sms")
	emitted(t, p.Kafka.Brokers[0], "strict.events", fmt.Sprintf(`{"api":"sms","uid":"1","permit":%q,"permit_at":%q}`, first.Event.ID, first.Event.At.Time().UTC().Format(time.RFC3339Nano)))
	first.Done("success")
	permit("sms")
	export := permit("export")
	var e explanation
	testrun.Eventually(t, "one is counted", func() bool {
		e = ask("uid=1")
		return len(e.Rules) > 0 && e.Rules[0].Strict != nil && e.Rules[0].Strict.Level == event.One
	})
	if len(e.Rules) != 4 || e.Rules[3].Rule != "exports" || e.Rules[1].Strict != nil || e.Rules[2].Strict != nil {
		t.Fatalf("%+v", e)
	}
	s := e.Rules[0].Strict
	if s.Held != event.One || s.Used != 2*event.One || s.Limit != 3*event.One || s.Remaining != event.One || s.Permits != 1 || s.Lost != "count" ||
		s.LostAt != s.Oldest+30*event.Second || s.Oldest < began-event.Second || s.ResetsAt < began+59*event.Minute || s.ResetsAt > began+61*event.Minute {
		t.Errorf("sms: %+v", s)
	}
	x := e.Rules[3]
	if x.Window != "in-flight" || x.Count != event.One || x.Strict == nil || x.Strict.Remaining != event.One || x.Strict.Lost != "return" ||
		x.Strict.ResetsAt != event.NoTime || x.Strict.LostAt != x.Strict.Oldest+10*event.Minute {
		t.Errorf("exports: %+v, %+v", x, x.Strict)
	}
	if got := ask("uid=1&api=export"); len(got.Rules) != 1 || got.Rules[0].Rule != "exports" {
		t.Errorf("of one API: %+v", got)
	}
	if got := ask("attrs.x=1"); got.Strict != nil || len(got.Rules) != 0 {
		t.Errorf("of dimensions without rules: %+v", got)
	}
	export.Done("success")
	testrun.Eventually(t, "the export has ended", func() bool { return ask("uid=1&api=export").Rules[0].Strict.Permits == 0 })
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "strict rules are in doubt", func() bool {
		s := ask("uid=1").Strict
		return s != nil && !s.Grants && s.DoubtSince > began && strings.HasPrefix(s.Why, "Redis lost its memory")
	})
}
