package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/api"
)

// topUp sends what a payment's webhook becomes, until an aggregator has taken it: it is the same request each time.
func topUp(t *testing.T, p *Process, body string) (done api.Commanded) {
	t.Helper()
	eventually(t, "the grant is taken", func() bool {
		resp, err := http.Post(p.url("/v1/grants"), "application/json", strings.NewReader(body))
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode == http.StatusOK && json.Unmarshal(text, &done) == nil
	})
	return done
}

// allows asks the decision server.
func allows(t *testing.T, guard *Process, uid string) (allowed bool) {
	t.Helper()
	resp, err := http.Post(guard.url("/v1/check"), "application/json", strings.NewReader(`{"api":"search.query","uid":"`+uid+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var d api.Decision
	if err := json.NewDecoder(resp.Body).Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d.Allowed
}

// A customer who is blocked pays. The provider's webhook comes twice, and once more after the aggregator was killed: the
// customer is let in, has what was bought once, and nobody else has anything of it.
func TestAGrantLetsInWhoIsBlocked(t *testing.T) {
	t.Parallel() // it waits more than it works
	r := newRig(t, searches)
	p := r.aggregator("a").Start().Ready()
	guard := r.enforcer()
	r.putEach(2, 5)
	r.caughtUp()
	eventually(t, "both are blocked", func() bool { return !allows(t, guard, "u0") && !allows(t, guard, "u1") })

	const paid = `{"id":"pay_1","key":{"uid":"u0"},"rule":"search-combined","amount":3,"reason":"invoice 12"}`
	if first := topUp(t, p, paid); first.Given == nil || first.Given.ID != "pay_1" {
		t.Fatalf("the first webhook: %+v", first)
	}
	eventually(t, "who paid is let in", func() bool { return allows(t, guard, "u0") })
	if again := topUp(t, p, paid); !again.Repeated {
		t.Errorf("the second webhook is answered with %+v", again)
	}
	p.Kill()
	p = r.aggregator("b").Start().Ready()
	if again := topUp(t, p, paid); !again.Repeated {
		t.Errorf("the webhook after the crash is answered with %+v", again)
	}
	for uid, limit := range map[string]string{"u0": "8", "u1": "5"} {
		reply, err := explainKey(p, "uid="+uid)
		if err != nil || reply.list[0].Limit.String() != limit || reply.list[0].Count.String() != "5" {
			t.Errorf("%s: %+v, %v; the limit should be %s", uid, reply.list, err, limit)
		}
	}
	if !allows(t, guard, "u0") || allows(t, guard, "u1") {
		t.Error("after the crash others are let in than before")
	}

	r.putEach(1, 3)
	r.caughtUp()
	eventually(t, "who has used up what was bought is blocked", func() bool { return !allows(t, guard, "u0") })
}
