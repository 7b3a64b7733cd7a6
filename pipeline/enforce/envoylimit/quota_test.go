package envoylimit_test

import (
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/envoylimit"
	"github.com/tallygate/tallygate/verdict"
)

// leaves is a user's remainder of 100.
func leaves(public, uid string, count event.Decimal) verdict.Verdict {
	v := block("uid", uid, "search.*")
	v.State, v.Rule, v.Public, v.Limit, v.Count = verdict.Left, public+"-rule", public, 100*event.One, count*event.One
	return v
}

// Envoy hears what is left of what is allowed, by both protocols; its clients hear the least.
func TestEnvoyHearsWhatIsLeft(t *testing.T) {
	table := tableOf(t, leaves("searches", "42", 63), leaves("writes", "43", 99))
	table.Heartbeat(0, table.Now())
	conn := dial(t, envoylimit.Config{Decider: table})
	resp := limited(t, conn, descriptor("uid=42", "api=search.query"), descriptor("uid=43", "api=search.query"), descriptor("uid=44", "api=search.query"))
	for i, want := range []uint32{37, 1, 0} {
		s := resp.GetStatuses()[i]
		if s.GetCode() != ok || s.GetLimitRemaining() != want || (s.GetCurrentLimit().GetRequestsPerUnit() == 100) != (want > 0) {
			t.Errorf("descriptor %d: %v, want %d left of 100", i, s, want)
		}
	}
	headers := map[string]string{}
	for _, h := range resp.GetResponseHeadersToAdd() {
		headers[h.GetKey()] = h.GetValue()
	}
	if got := headers["ratelimit"]; len(got) < 10 || got[:14] != `"writes";r=1;t` {
		t.Errorf("ratelimit: %s", got)
	}
	a := from("GET", "/", "x-tallygate-uid: 42", "x-tallygate-api: search.query")
	added := checked(t, conn, a).GetOkResponse().GetResponseHeadersToAdd()
	if len(added) != 2 || added[0].GetHeader().GetKey() != "ratelimit" || added[0].GetHeader().GetValue()[:17] != `"searches";r=37;t` {
		t.Errorf("ext_authz adds %v", added)
	}
}
