package decision_test

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/testing/apitest"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// What the decision server answers, byte for byte, in a bubble where time stands still: testdata/answers.txt. A question
// is METHOD PATH [as TOKEN] [at SERVER], then header fields, then the body. Permits, which are in Redis, are those of
// testdata/permits.txt.
func TestAnswers(t *testing.T) {
	asked := map[string]bool{}
	synctest.Test(t, func(t *testing.T) { playAnswers(t, "testdata/answers.txt", answering(t), asked) })
	admitting := newPermits(t, miniredis.RunT(t).Addr()).server(t)
	playAnswers(t, "testdata/permits.txt", map[string]*rig{"": admitting}, asked)
	for _, o := range apitest.Open(t, apidocs.Enforcer).Operations() {
		path, _, _ := strings.Cut(o.Path, "{")
		if served := o.Path != "/healthz" && o.Path != "/readyz" && o.Path != "/openapi.json" && o.Path != "/v1/status"; served && !asked[o.Method+" "+path] && !o.AnyMethod() {
			t.Errorf("testdata does not ask %s %s", o.Method, o.Path)
		}
	}
}

func playAnswers(t *testing.T, file string, at map[string]*rig, asked map[string]bool) {
	token := ""
	testrun.Script(t, file, func(question []string) string {
		for i := range question { // of the answer before
			question[i] = strings.ReplaceAll(question[i], "TOKEN", token)
		}
		req, about := testrun.Request(t, question)
		req.RequestURI, req.RemoteAddr, req.Host = req.URL.RequestURI(), "192.0.2.1:1234", "127.0.0.1:1"
		asked[req.Method+" "+req.URL.Path] = true
		answer := testrun.Answer(t, at[about["at"]].do(req))
		if _, after, ok := strings.Cut(answer, `"token":"`); ok {
			token, _, _ = strings.Cut(after, `"`)
			answer = strings.ReplaceAll(answer, token, "<token>")
		}
		if strings.Contains(file, "permits") { // in real time
			answer = refilled.ReplaceAllString(testrun.Steady(answer, "retry_after", "reset", "waited"), "$1")
		}
		return answer
	})
}

// refilled matches the share of a token that an empty bucket has gained since.
var refilled = regexp.MustCompile(`("remaining":0)\.0\d+`)

// answering are servers by name: "" has verdicts, and callers with roles.
func answering(t *testing.T) map[string]*rig {
	file := filepath.Join(t.TempDir(), "tokens")
	text := fmt.Sprintf(`[{"name": "ann", "role": "viewer", "sha256": "%x"}, {"name": "shop", "role": "service", "sha256": "%x"}]`, sha256.Sum256([]byte("viewer")), sha256.Sum256([]byte("service")))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	guard, err := access.New(access.Config{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}, Tokens: file})
	if err != nil {
		t.Fatal(err)
	}
	closed, err := enforce.NewTable(enforce.Config{OnStale: enforce.Closed, Rules: map[string]enforce.RuleOnStale{"logins": {APIs: []string{"login"}}}})
	if err != nil {
		t.Fatal(err)
	}
	does := func(a verdict.Action) func(*verdict.Verdict) { return func(v *verdict.Verdict) { v.Action = a } }
	public := func(v *verdict.Verdict) { v.Public, v.APIs, v.Per = "searches", []string{"search.*"}, 5*event.Minute }
	verdicts := []verdict.Verdict{
		block("orders", "uid", "42"), block("searches-rule", "uid", "43", public), block("device", "attrs.device", "d1", only("get.search")),
		block("net", "ip", "203.0.113.9"), block("turns", "uid", "44", does(verdict.ActThrottle), func(v *verdict.Verdict) { v.Per = 5 * event.Minute }),
		block("robots", "uid", "45", does(verdict.ActChallenge)), block("seen", "uid", "46", does(verdict.ActLog)),
		block("tried", "uid", "47", func(v *verdict.Verdict) { v.Mode = verdict.Shadow }),
		leaves("search-combined", "uid", "48", 63, public), leaves("exports/daily", "attrs.tenant", "acme", 120),
	}
	return map[string]*rig{
		"": newRig(t, func(c *decision.Config) { c.Guard = guard }).blocks(verdicts...),
		"other-answers": newRig(t, func(c *decision.Config) {
			c.Guard, c.AllowStatus, c.RequireDimensions, c.NoList, c.MaxWait = guard, 200, true, true, time.Second
			c.Answers = enforce.Answers{
				Status: 420, XRateLimit: true, PartitionKey: []byte("secret"), Type: "https://shop.example/limited", Title: "Slow down",
				Messages: map[string]string{"en": "later"}, UnavailableStatus: 429, Rules: map[string]enforce.PublicRule{"exports": {Name: "downloads"}, "orders": {Name: "buying"}},
			}
		}).blocks(verdicts...),
		"stale":  newRig(t),
		"closed": newRigOf(t, closed),
	}
}
