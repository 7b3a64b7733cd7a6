package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/console/workbench"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/internal/tools/replay"
)

func try(action, rules string, more ...string) url.Values {
	form := url.Values{"action": {action}, "rules": {rules}}
	for i := 0; i < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	return form
}

func TestTryCheck(t *testing.T) {
	g := &group{texts: []string{shopRules(3, "100")}}
	s := serve(t, g, access.Viewer, workbench.Config{})
	s.has(s.get("/try?rule=rule-001", http.StatusOK), "begins on line 14", `data-line="14"`, "- name: rule-001", "&lt;script&gt;", "nothing is kept", "from the role operator on")
	bad := s.post("/try", try("check", strings.ReplaceAll(shopRules(3, "ten"), "\n", "\r\n")), http.StatusOK)
	s.has(bad, "3 mistakes", `data-line="10" data-column="14"`, "rules.yaml, line 10", "             ^", "limit: ten", "</textarea>")
	s.has(s.post("/try", try("check", shopRules(3, "100")), http.StatusOK), "valid: 3 rules, 3 limits", "It is the text that runs.")
	part := s.post("/try", try("check-part", strings.ReplaceAll(shopRules(3, "100"), "rule-002", "rule-00x")), http.StatusOK)
	s.has(part, "New rules", "<strong>rule-00x</strong>", "Gone rules", "<strong>rule-002</strong>")
	s.lacks(part, "<html")
	saved := s.post("/try", try("download", "a: 1\r\nb: 2\r\n"), http.StatusOK)
	if saved != "a: 1\nb: 2\n" {
		t.Errorf("saved %q", saved)
	}
	s.post("/try", try("nonsense", ""), http.StatusBadRequest)
	if len(g.texts) != 1 || g.rolled != nil {
		t.Error("to try a change has changed the rules")
	}
}

// Whatever is typed comes back as text, and costs a moment.
func TestTryHostileText(t *testing.T) {
	t.Parallel()
	s := serve(t, &group{texts: []string{shopRules(1, "100")}, files: map[string][]byte{"vip.txt": []byte("10.0.0.0/8\n")}}, access.Operator, workbench.Config{Events: pastEvents(10)})
	const script = `<script>alert("x")</script>`
	page := s.post("/try", try("check", "kind: "+script+"\n</textarea>"+script, "tests", script), http.StatusOK)
	s.lacks(page, script, "</textarea>&lt;")
	s.has(page, "&lt;script&gt;")
	page = s.post("/try", try("test", shopRules(1, "1"), "tests", "rule_files: [/etc/passwd]\ntests: [{name: "+script+", events: [], expect: [{at: 0s, uid: u, api: a, verdict: block}]}]"), http.StatusOK)
	s.lacks(page, script)
	for _, text := range map[string]string{
		"bomb": "a: &a [x,x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nkind: [*c,*c,*c]\n", "deep": strings.Repeat("[", 10_000), "binary": "\x00\x01\x02", "1.2 MB": strings.Repeat("x", 1_200_000),
	} {
		page := s.post("/try", try("check", text), http.StatusOK)
		s.has(page, "mistake")
		s.lacks(page, "the check takes more than")
	}
	s.has(s.post("/try", try("check", strings.Repeat("x", 10<<20)), http.StatusBadRequest), "The form cannot be read")
	for _, name := range []string{"/etc/passwd", "../../../../etc/passwd", "page_try_test.go", "vip.txt/../../go.mod"} {
		text := strings.Replace(shopRules(1, "1"), "  rules:", "  networks: {office: "+name+"}\n  rules:", 1)
		s.has(s.post("/try", try("check", text), http.StatusOK), "file does not exist")
	}
	s.has(s.post("/try", try("check", strings.Replace(shopRules(1, "1"), "  rules:", "  networks: {office: vip.txt}\n  rules:", 1)), http.StatusOK), "valid: 1 rule")
}

func TestTryTests(t *testing.T) {
	s := serve(t, &group{texts: []string{shopRules(3, "100")}}, access.Viewer, workbench.Config{})
	s.has(s.post("/try", try("test", shopRules(1, "10"), "tests", sampleTests), http.StatusOK), "1 test passed", "ten pass, the eleventh does not")
	s.has(s.post("/try", try("test", shopRules(1, "100"), "tests", sampleTests), http.StatusOK), "1 of 1 test failed", "(expected)", "rule-000")
	s.has(s.post("/try", try("test", shopRules(1, "x"), "tests", sampleTests), http.StatusOK), "No test ran: 1 mistake", "rules.yaml, line 10")
	s.has(s.post("/try", try("test", shopRules(1, "1"), "tests", " "), http.StatusBadRequest), "There are no tests", "limit: 1")
}

func TestTryReplay(t *testing.T) {
	s := serve(t, &group{texts: []string{shopRules(3, "100")}}, access.Operator, workbench.Config{Events: pastEvents(3000)})
	page := s.post("/try", try("replay", shopRules(4, "250"), "span", "24h"), http.StatusOK)
	s.has(page, "Replay against version 1", "3\u202f000 events", "No longer hit", "rule-003", "<small>new</small>", "uid=•••", `download="replay.json"`, "data:application/json;base64,", `<option value="24h" selected>`)
	s.lacks(page, "user-1")
	s.has(s.post("/try", try("replay", strings.ReplaceAll(shopRules(3, "100"), "100", "20"), "span", "24h"), http.StatusOK), "Events newly denied", "Hit by both, denied more", "with those that run", `<tr class="warn">`)
	live := s.post("/try", try("replay-live", shopRules(4, "250")), http.StatusOK)
	s.has(live, "event: progress\ndata: {", "event: result\ndata: ", "Replay against version 1")
	s.has(s.post("/try", try("replay-live", shopRules(4, "x")), http.StatusOK), "Correct the mistakes first")
	s.has(s.post("/try", try("replay", shopRules(4, "x")), http.StatusOK), "rules.yaml, line 10", "4 mistakes")

	odd := serve(t, &group{texts: []string{shopRules(3, "100")}}, access.Operator, workbench.Config{Events: func(context.Context, time.Time) (replay.Source, error) {
		return &oddFields{past: past{n: 10}}, nil
	}})
	const plan = "&#34;plan&#34; is no field of an event, and is not read"
	odd.has(odd.post("/try", try("replay", shopRules(3, "250")), http.StatusOK), plan, "&#34;&lt;b&gt;&#34; is no field")
	odd.has(odd.post("/try", try("replay-live", shopRules(3, "250")), http.StatusOK), plan)
	s.lacks(page, "is no field of an event")

	viewer := serve(t, &group{texts: []string{shopRules(3, "100")}}, access.Viewer, workbench.Config{Events: pastEvents(3000)})
	viewer.post("/try", try("replay", shopRules(4, "250")), http.StatusForbidden)
	viewer.post("/try", try("replay-live", shopRules(4, "250")), http.StatusForbidden)

	dead := serve(t, &group{texts: []string{shopRules(3, "100")}}, access.Operator, workbench.Config{Events: func(context.Context, time.Time) (replay.Source, error) {
		return nil, errors.New("dial tcp: connection refused")
	}})
	dead.has(dead.post("/try", try("replay", shopRules(3, "250")), http.StatusInternalServerError), "connection refused", "limit: 250")
	dead.has(dead.post("/try", try("replay-live", shopRules(3, "250")), http.StatusOK), "event: trouble", "connection refused")
	none := serve(t, &group{texts: []string{shopRules(3, "100")}}, access.Operator, workbench.Config{})
	none.has(none.post("/try", try("replay", shopRules(3, "250")), http.StatusBadRequest), "no Kafka")
}

// A draft with `limit: suggest` gets its numbers from past events, with masked keys; any other text is told what it lacks.
func TestTrySuggest(t *testing.T) {
	s := serve(t, &group{texts: []string{shopRules(3, "100")}}, access.Operator, workbench.Config{Events: pastEvents(3000)})
	page := s.post("/try", try("suggest", shopRules(2, "suggest"), "span", "24h", "share", "1%", "of", "events"), http.StatusOK)
	s.has(page, "Numbers for 1% of the events", "3\u202f000 events", "Keys with the highest counts", "uid=•••", `download="suggested.json"`, "<option selected>1%</option>",
		"<option selected>events</option>", "The rules with these numbers", "- name: rule-001", "3 keys had")
	s.lacks(page, "user-1", "<pre tabindex=\"0\">limit: suggest")
	live := s.post("/try", try("suggest-live", shopRules(2, "suggest"), "share", "5%"), http.StatusOK)
	s.has(live, "event: progress\ndata: {", "event: result\ndata: ", "Numbers for 0.1% of the keys")
	s.has(s.post("/try", try("suggest", shopRules(2, "100")), http.StatusOK), "no limit is to be suggested")
	s.has(s.post("/try", try("suggest-live", shopRules(2, "x")), http.StatusOK), "Correct the mistakes first")
	s.has(s.post("/try", try("check", shopRules(2, "suggest")), http.StatusOK), "`suggest` is no number yet", "tallygate suggest")
	viewer := serve(t, &group{texts: []string{shopRules(3, "100")}}, access.Viewer, workbench.Config{Events: pastEvents(3000)})
	viewer.post("/try", try("suggest", shopRules(2, "suggest")), http.StatusForbidden)
	viewer.post("/try", try("suggest-live", shopRules(2, "suggest")), http.StatusForbidden)
	none := serve(t, &group{texts: []string{shopRules(3, "100")}}, access.Operator, workbench.Config{})
	none.has(none.post("/try", try("suggest", shopRules(2, "suggest")), http.StatusBadRequest), "no Kafka")
}

// A reader who leaves ends the replay: another one may begin at once.
func TestLeavingEndsAReplay(t *testing.T) {
	s := serve(t, &group{texts: []string{shopRules(3, "100")}}, access.Operator, workbench.Config{Events: func(ctx context.Context, _ time.Time) (replay.Source, error) {
		return &waits{}, nil
	}})
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/try", strings.NewReader(try("replay-live", shopRules(3, "250")).Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 20)
	if _, err := resp.Body.Read(first); err != nil || !strings.HasPrefix(string(first), "event: progress") {
		t.Fatalf("%q, %v", first, err)
	}
	s.has(s.post("/try", try("replay", shopRules(3, "250")), http.StatusTooManyRequests), "of yours is under way")
	leave()
	_ = resp.Body.Close()
	testrun.Eventually(t, "the reader's place is free", func() bool {
		return strings.Contains(s.post("/try", try("replay-live", shopRules(3, "x")), http.StatusOK), "Correct the mistakes first")
	})
}

// oddFields has events with fields that nothing reads, as a topic may have.
type oddFields struct {
	past
	told func(name string)
}

func (o *oddFields) OnUnread(told func(name string)) { o.told = told }

func (o *oddFields) Next(ctx context.Context) (*replay.Record, error) {
	if o.told != nil {
		o.told("plan")
		o.told("<b>")
	}
	return o.past.Next(ctx)
}

// waits has events that do not come.
type waits struct{ past }

func (*waits) Next(ctx context.Context) (*replay.Record, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
