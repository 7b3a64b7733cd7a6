package console

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/console/chart"
	"github.com/tallygate/tallygate/internal/console/workbench"
	"github.com/tallygate/tallygate/internal/run/access"
)

func TestRulesList(t *testing.T) {
	s := serve(t, &group{texts: []string{shopRules(500, "90"), shopRules(500, "100")}}, access.Viewer, workbench.Config{})
	page := s.get("/rules", http.StatusOK)
	s.has(page, `id="rule-rule-000"`, `id="rule-rule-099"`, "500 rules", "page 1 of 5", `href="/rules/rule-000"`, "at most 100 events per uid in any 1m", "fuse blown", `aria-sort="ascending"`, "alice (by console)")
	s.lacks(page, `id="rule-rule-100"`, "<script>alert")
	if n := len(page); n > 150<<10 {
		t.Errorf("the page has %d bytes before compression", n)
	}
	s.has(s.get("/rules?page=5", http.StatusOK), `id="rule-rule-499"`, "page 5 of 5")
	s.has(s.get("/rules?page=99", http.StatusOK), "page 5 of 5")
	s.has(s.get("/rules?sort=matches&order=down", http.StatusOK), `id="rule-rule-499"`, `aria-sort="descending"`)
	one := s.get("/rules?q=API-42%20", http.StatusOK)
	s.has(one, "1 of 500 rules", `id="rule-rule-042"`)
	s.has(s.get("/rules?q=%22%3E%3Cscript%3E", http.StatusOK), "No rule is like that", "&#34;&gt;&lt;script&gt;")
	s.has(s.get("/rules?only=fuse+blown", http.StatusOK), "1 of 500 rules", `id="rule-rule-002"`)
	most := s.get("/rules?only=overshoot&sort=overshoot&order=down", http.StatusOK)
	s.has(most, "Overshoot/s", "333 of 500 rules", "in all</small>", `id="rule-rule-002"`) // two of three rules let something through
	s.lacks(most, `id="rule-rule-001"`)                                                    // and this one of them less
	s.has(s.get("/rules?mode=shadow", http.StatusOK), "No rule is like that")
	s.has(s.get("/rules?sort=nonsense&page=-3", http.StatusOK), `id="rule-rule-000"`)
	for _, token := range s.group.tokens {
		if token != "the-consoles-own" && token != "viewer" { // what all readers see alike is asked for once
			t.Errorf("asked with %q", token)
		}
	}
}

// While nobody answers, the last numbers stay, and the page says so.
func TestRulesListWhileTheAggregatorIsDown(t *testing.T) {
	g := &group{texts: []string{shopRules(3, "100")}}
	s := serve(t, g, access.Viewer, workbench.Config{})
	s.get("/rules", http.StatusOK)
	g.dead = true
	s.rules.watch.Round(t.Context())
	s.has(s.get("/rules", http.StatusOK), "not up to date", "the instance is stopping", `id="rule-rule-000"`)
	fresh := serve(t, &group{texts: []string{shopRules(3, "100")}, dead: true}, access.Viewer, workbench.Config{})
	fresh.has(fresh.get("/rules", http.StatusServiceUnavailable), "the instance is stopping")
}

func TestRulePage(t *testing.T) {
	g := &group{texts: []string{shopRules(3, "90"), shopRules(3, "100")}}
	s := serve(t, g, access.Viewer, workbench.Config{})
	page := s.get("/rules/rule-001", http.StatusOK)
	s.has(page, "at most 100 events per uid in any 1m", "block for 5m; it covers search.query, api-1", "# What search may cost, part 1: &lt;script&gt;alert(1)&lt;/script&gt;", `start="14"`,
		"9 above the limit of 100, 21 near it", "<svg", `href="/versions/diff?from=1&amp;to=2"`, "ticket &lt;b&gt;2&lt;/b&gt;", `href="/try?rule=rule-001"`, `href="/blocked?rule=rule-001"`, `href="/audit?rule=rule-001"`)
	s.has(s.get("/rules/rule-002", http.StatusOK), "fuse has blown")
	s.has(s.get("/rules/rule-001?at=80", http.StatusOK), "At 80 instead, 22 keys more would be over it now.")
	s.has(s.get("/rules/rule-001?at=85", http.StatusOK), "At 85 instead, about 16 keys more would be over it now.")
	s.has(s.get("/rules/rule-001?at=200", http.StatusOK), "At 200 instead, 7 keys fewer would be over it now.")
	s.has(s.get("/rules/rule-001?at=%3Cb%3E", http.StatusOK), "&lt;b&gt;: write a number")
	s.has(s.get("/rules/nothing", http.StatusNotFound), "has no rule nothing")
	g.noCounts = true
	s.has(s.get("/rules/rule-001", http.StatusOK), "The aggregator does not tell", "As it is published")
}

func TestWhatIf(t *testing.T) {
	buckets := []chart.Bucket{{From: 0, To: 50, Keys: 100}, {From: 50, To: 100, Keys: 10}, {From: 100, To: 200, Keys: 4}}
	for at, want := range map[string]string{
		"100": "0 more, 0 fewer, about false", "50": "10 more, 0 fewer, about false", "75": "5 more, 0 fewer, about true", "150": "0 more, 2 fewer, about true",
		"1000": "0 more, 4 fewer, about false", "0": "110 more, 0 fewer, about false", "99,5": "0 more, 0 fewer, about true", "-1": "wrong", "NaN": "wrong", "1e999": "wrong", "": "wrong",
	} {
		w := whatIfAt(at, 100, buckets)
		got := fmt.Sprintf("%d more, %d fewer, about %t", w.More, w.Fewer, w.About)
		if w.Wrong != "" {
			got = "wrong"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", at, got, want)
		}
	}
}

func TestVersions(t *testing.T) {
	g := &group{}
	for v := range 60 {
		g.texts = append(g.texts, shopRules(2, fmt.Sprint(100+v)))
	}
	s := serve(t, g, access.Viewer, workbench.Config{})
	page := s.get("/versions", http.StatusOK)
	s.has(page, `href="/versions/diff?from=59&amp;to=60"`, "runs", `href="/versions?before=11"`, `href="/versions/back?version=59"`, "alice (by console)", "ticket &lt;b&gt;60&lt;/b&gt;")
	s.lacks(page, "<b>60</b>", `href="/versions/back?version=60"`)
	s.has(s.get("/versions?before=11", http.StatusOK), `value="10"`, "The newest")
	s.get("/versions?before=x", http.StatusBadRequest)
	unified := s.get("/versions/diff?from=59&to=60", http.StatusOK)
	s.has(unified, "2 lines added, 2 lines removed", `class="added"`, "limit: 159", "limit: 158", "Judged anew", "rule-000", "&lt;script&gt;", "unchanged lines")
	s.has(s.get("/versions/diff?from=59&to=60&view=sides", http.StatusOK), "One below the other", ">version 59<", "limit: 159")
	s.has(s.get("/versions/diff?from=60&to=60", http.StatusOK), "Nothing: both have the same text.", "Nothing but comments or layout differs")
	s.has(s.get("/versions/diff?from=1&to=99", http.StatusNotFound), "There is no such version")
	s.get("/versions/diff?from=1", http.StatusBadRequest)
}

// Only an admin rolls back, with a reason, with the admin's own token, and from what the preview was of.
func TestRollBack(t *testing.T) {
	form := map[string][]string{"action": {"back"}, "version": {"1"}, "seen": {"2"}, "reason": {" ticket 7 "}}
	for _, role := range []access.Role{access.Viewer, access.Operator} {
		s := serve(t, &group{texts: []string{shopRules(2, "90"), shopRules(2, "100")}}, role, workbench.Config{})
		s.has(s.get("/versions/back?version=1", http.StatusOK), "needs the role admin", "Judged anew")
		s.post("/versions/back?version=1", form, http.StatusForbidden)
		if s.group.rolled != nil {
			t.Errorf("%s rolled back", role)
		}
	}
	g := &group{texts: []string{shopRules(2, "90"), shopRules(2, "100")}}
	s := serve(t, g, access.Admin, workbench.Config{})
	s.has(s.get("/versions/back?version=1", http.StatusOK), `name="reason"`, "required", "2 lines added, 2 lines removed")
	s.has(s.get("/versions/back?version=2", http.StatusOK), "There is nothing to do")
	form["reason"] = []string{" "}
	s.has(s.post("/versions/back?version=1", form, http.StatusBadRequest), "The reason is missing")
	form["reason"], form["seen"] = []string{" ticket 7 "}, []string{"1"}
	s.has(s.post("/versions/back?version=1", form, http.StatusConflict), "Other rules run by now")
	form["seen"] = []string{"2"}
	s.post("/versions/back?version=1", form, http.StatusSeeOther)
	if g.rolled["reason"] != "ticket 7" || g.rolled["version"] != 1.0 || len(g.texts) != 3 || g.rolledBy != "admin" {
		t.Errorf("%v with %v", g.rolled, g.rolledBy)
	}
	if !strings.Contains(s.get("/rules", http.StatusOK), `<a href="/versions">3</a>`) {
		t.Error("the list has the old version still")
	}
}

// What was done says which version runs, as the list below it does: the list said so a round later.
func TestARollBackAgreesWithItsList(t *testing.T) {
	runs := regexp.MustCompile(`<th scope="row">(\d+) <span class="pill ok">`)
	for loads, want := range []string{"Version 3 runs, with the text of version 1.", "Version 3 is published, with the text of version 1: the aggregators run it within seconds."} {
		s := serve(t, &group{texts: []string{shopRules(2, "90"), shopRules(2, "100")}}, access.Admin, workbench.Config{})
		s.group.loads = loads
		s.rules.watch.Round(t.Context())
		seen := strconv.Itoa(2 - loads)
		s.post("/versions/back?version=1", map[string][]string{"action": {"back"}, "version": {"1"}, "seen": {seen}, "reason": {"ticket 7"}}, http.StatusSeeOther)
		page := s.get("/versions", http.StatusOK)
		s.has(page, want)
		if got := runs.FindAllStringSubmatch(page, -1); len(got) != 1 || got[0][1] != strconv.Itoa(3-loads) {
			t.Errorf("%s The list: %q", want, got)
		}
	}
}
