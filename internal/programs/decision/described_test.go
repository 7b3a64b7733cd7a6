package decision_test

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/internal/testing/apitest"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

// Answers that the OpenAPI document describes and no other test has: TestMain wants each of them.
func TestTheRestOfWhatIsDescribed(t *testing.T) {
	long := `{"api":"` + strings.Repeat("a", 1<<20) + `"}`
	without, denying := newRig(t), newRig(t).blocks(block("r", "uid", "42"))
	calm := newRig(t, func(c *decision.Config) { c.Answers = enforce.Answers{Status: 420, XRateLimit: true} }).blocks(block("r", "uid", "42"))
	admitting := newPermits(t, miniredis.RunT(t).Addr()).server(t)
	for _, c := range []struct {
		rig                *rig
		method, path, body string
		want               int
	}{
		{without, "POST", "/v1/admit", `{"api":"a"}`, 404},
		{without, "POST", "/v1/done", `{"token":"1.x"}`, 404},
		{without, "POST", "/v1/cancel", `{"token":"1.x"}`, 404},
		{without, "GET", "/v1/cancel", "", 404},
		{without, "POST", "/v1/check/batch", long, 413},
		{admitting, "POST", "/v1/admit", long, 413},
		{admitting, "POST", "/v1/done", `{"token":"` + long[len(`{"api":"`):], 413},
		{admitting, "POST", "/v1/cancel", `{"token":"` + long[len(`{"api":"`):], 413},
		{denying, "GET", "/v1/forward-auth?denied=401", "", 401},
		{denying, "HEAD", "/v1/forward-auth?denied=403", "", 403},
		{calm, "GET", "/v1/forward-auth", "", 420},
		{calm, "PURGE", "/v1/ext-authz/a", "", 420},
	} {
		r, err := http.NewRequest(c.method, "http://127.0.0.1"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Tallygate-Uid", "42")
		if resp := c.rig.do(r); resp.StatusCode != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, resp.StatusCode, c.want)
		}
	}
}

// A check is accepted exactly if it is as described, but for the values of texts and for integers that
// are written as 42.0. That what is accepted is as described, each request of a rig shows.
func TestChecksThatAreDescribedAreAccepted(t *testing.T) {
	schema, err := apitest.Compile(apidocs.Enforcer + "#/components/schemas/Check")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t).blocks()
	random := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	other := func() string { return pick(`null`, `true`, `7`, `"x"`, `[]`, `{}`, `-1.5`, `""`) }
	refused, accepted := 0, 0
	for range 800 {
		var fields []string
		for name, value := range map[string]string{
			"api": pick(`"a"`, `"a"`, `"search.query"`, other()), "uid": pick(`"42"`, `42`, `-7`, other()), "ip": pick(`"203.0.113.9"`, `"::1"`, other()),
			"attrs": pick(`{}`, `{"x":1,"y":"a","z":true,"n":null}`, `{"x":`+other()+`}`, other()), "wait": pick(`"800ms"`, `2`, `0`, `0.5`, other()), "user": other(),
		} {
			if chance := map[string]float64{"api": 0.95, "user": 0.05}[name]; random.Float64() < cmp.Or(chance, 0.5) {
				fields = append(fields, strconv.Quote(name)+":"+value)
			}
		}
		body := "{" + strings.Join(fields, ",") + "}"
		status := r.post("/v1/check", body).StatusCode
		text := strings.Contains(body, `"ip":"x"`) || strings.Contains(body, `"wait":"x"`) || strings.Contains(body, `"wait":""`)
		if good := schema.Validate([]byte(body)) == nil; good && status != 200 && !text || !good && status == 200 {
			t.Fatalf("%s is answered %d: %v", body, status, schema.Validate([]byte(body)))
		}
		if status == 200 {
			accepted++
		} else {
			refused++
		}
	}
	if accepted < 80 || refused < 80 {
		t.Errorf("%d accepted, %d refused: too few to say anything", accepted, refused)
	}
}
