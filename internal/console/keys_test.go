package console

import (
	"encoding/csv"
	"encoding/json"
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/console/blocks"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

const secretUID = "customer-4711"

// blockOne sends the events that block a user, and waits until the console knows.
func (r *keyRig) blockOne() {
	r.t.Helper()
	r.emits(6, event.Event{UID: secretUID, API: "search.query", Time: event.NoTime, BrokerTime: event.NoTime, Cost: event.One})
	r.emits(4, event.Event{UID: secretUID, API: "ad.select", Time: event.NoTime, BrokerTime: event.NoTime, Cost: event.One,
		Attrs: []event.Attr{{Name: "campaign", Value: event.StringValue("summer")}}})
	r.settled(3)
}

// settled waits until so many verdicts are in force, and the audit is up to date.
func (r *keyRig) settled(verdicts int) {
	r.t.Helper()
	testrun.Eventually(r.t, "the verdicts are in the blocklist and in the audit", func() bool {
		p, err := r.keys.list.Page(blocksQuery)
		return err == nil && p.All == verdicts && r.keys.audit.Health().Entries >= verdicts
	})
}

// link is the first address on a page that matches.
func (a answer) link(t testing.TB, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(`href="(` + pattern + `)"`).FindStringSubmatch(a.text)
	if found == nil {
		t.Fatalf("%s (%d) has no link %s\n%s", a.path, a.status, pattern, mainOf(a.text))
	}
	return html.UnescapeString(found[1])
}

// One support case from the first click to the last, on the embedded stack.
func TestASupportCase(t *testing.T) {
	t.Parallel()
	r := startKeyRig(t)
	r.blockOne()
	u := r.as("operator")

	list := u.get("/blocked")
	list.shows(t, "3 verdicts", "search-combined", "campaign", "shadow", "live", "uid=•••", "!"+secretUID, "Export as CSV")
	u.get("/blocked?mode=shadow").shows(t, "1 of 3 verdicts", "daily")
	u.get("/blocked?rule=campaign&sort=since").shows(t, "1 of 3 verdicts", "attrs.campaign=•••")
	u.get("/blocked?dim=ip").shows(t, "None of them matches")
	u.get("/blocked?mode=off").shows(t, "The filter is not valid")

	masked := u.get(u.get("/blocked?rule=search-combined").link(t, "/key/[A-Za-z0-9_-]+"))
	masked.shows(t, "The key is masked", "Show the key", "!"+secretUID, "search-combined", "6 of 5", "edge-1", "block by search-combined", "Unblock …", "!Erase …", "uid=•••")
	if !strings.Contains(masked.text, "is blocked by the rule search-combined since") {
		t.Errorf("no sentence says why:\n%s", mainOf(masked.text))
	}
	shown := u.post(masked.path, "action", "show")
	shown.shows(t, "uid="+secretUID, "!The key is masked")
	if !r.api.seen("/v1/reads", "Bearer token-operator", secretUID, `"what":"show"`) {
		t.Error("the audit does not know who saw the key")
	}

	found := u.post("/key", "action", "search", "key", "uid="+secretUID, "ticket", "T-1")
	found.shows(t, "uid="+secretUID, "attrs.campaign=•••", "What each enforcer answers now")
	if found.path != masked.path {
		t.Errorf("the search leads to %s, and the list to %s", found.path, masked.path)
	}

	form := u.get(found.path + "/unblock")
	form.shows(t, "Ends 3 verdicts in 2 keys.", "Only the rule search-combined: ends 1 verdict.", "Reason")
	u.post(found.path+"/unblock", "action", "do", "reason", "  ").shows(t, "Say why")
	u.post(found.path+"/unblock", "action", "do", "reason", "x", "ticket", "nonsense").shows(t, "This is not a ticket")
	done := u.post(found.path+"/unblock", "action", "do", "reason", "called support", "ticket", "HELP-7")
	done.shows(t, "Unblocked uid="+secretUID+": 3 verdicts ended")
	if !r.api.seen("/v1/commands", "Bearer token-operator", `"reason":"called support (ticket HELP-7)"`) || r.api.seen("/v1/commands", `"by"`) {
		t.Error("the command was not given by the reader alone")
	}
	r.settled(0)
	testrun.Eventually(t, "it can be undone", func() bool { return strings.Contains(u.get(found.path).text, "Undo: block again") })
	again := u.get(found.path)
	again.shows(t, "nothing is enforced", "unblock")
	u.post(found.path+"/block", "action", "do", "reason", "undo", "for", "soon").shows(t, "For how long?")
	u.post(found.path+"/block", "action", "do", "reason", "stolen card", "for", "10m").shows(t, "Blocked uid="+secretUID+" until", "Undo: unblock")
	r.settled(1)
	u.post(found.path+"/unblock", "action", "do", "reason", "undo of command x", "rule", "manual", "exact", "yes").shows(t, "1 verdict ended")

	u.post(found.path+"/exempt", "action", "do", "reason", "load test", "for", "30m").shows(t, "Exempted uid="+secretUID)
	u.get("/exemptions").shows(t, "uid=•••", "load test", "ann-operator", "Extend …", "!"+secretUID)
	u.get("/exemptions?show=soon").shows(t, "load test")
	u.get("/exemptions?show=rules").shows(t, "Nothing is exempt")
	u.post(found.path+"/end-exemption", "action", "do", "reason", "over").shows(t, "Ended 1 exemption")
	u.post(found.path+"/reset", "action", "do", "reason", "over").shows(t, "set to zero")

	audit := u.get("/audit?type=command")
	audit.shows(t, "unblock", "called support (ticket HELP-7)", "uid=•••", "!"+secretUID, "ann-operator", "Export as NDJSON")
	u.post("/audit", "action", "search", "key", "uid="+secretUID).shows(t, "uid="+secretUID, "called support")
	u.get(u.get("/audit?type=rules").link(t, "/versions")).shows(t, "Versions of the rules")
	u.get("/audit?who=nobody").shows(t, "No entry")
	u.get("/audit?from=tomorrow").shows(t, "This is not a time")

	r.exports(u)
	r.weakAndStrong(found.path)
	r.nothingLeaks()
}

// exports checks the files that an operator takes along.
func (r *keyRig) exports(u *reader) {
	r.t.Helper()
	r.emits(6, event.Event{UID: "=cmd()", API: "search.query", Time: event.NoTime, BrokerTime: event.NoTime, Cost: event.One})
	r.settled(1)
	file := u.get("/blocked/export.csv?mode=enforce")
	rows, err := csv.NewReader(strings.NewReader(file.text)).ReadAll()
	if err != nil || len(rows) != 2 || rows[1][0] != "uid==cmd%28%29" && !strings.HasPrefix(rows[1][0], "uid=") || rows[1][6] != "6" {
		r.t.Errorf("%v, %v", rows, err)
	}
	if !r.api.seen("/v1/reads", "export-blocked", "1 verdicts as CSV") {
		r.t.Error("the export is not in the audit")
	}
	lines := strings.Split(strings.TrimSpace(u.get("/audit/export.ndjson?type=command").text), "\n")
	for _, line := range lines {
		if !json.Valid([]byte(line)) || !strings.Contains(line, `"type":"command"`) {
			r.t.Errorf("a line of the export is %s", line)
		}
	}
	if len(lines) < 5 || !strings.Contains(strings.Join(lines, ""), secretUID) {
		r.t.Errorf("%d lines are exported", len(lines))
	}
}

// weakAndStrong checks what a viewer may not, and what only an admin may.
func (r *keyRig) weakAndStrong(path string) {
	r.t.Helper()
	viewer := r.as("viewer")
	viewer.get("/blocked").shows(r.t, "!Export")
	viewer.get(path).shows(r.t, "The key is masked", "!Show the key", "!Unblock …", "Search for it by its exact value")
	viewer.get("/blocked/export.csv").shows(r.t, "this needs the role operator")
	viewer.get("/audit/export.ndjson").shows(r.t, "this needs the role operator")
	viewer.get(path+"/block").shows(r.t, "You may not do this")
	no := viewer.post(path+"/block", "action", "do", "reason", "x", "for", "1m")
	if no.shows(r.t, "Your role is not sufficient", "this needs the role operator"); no.status != 403 || !r.api.seen("/v1/commands", "Bearer token-viewer") {
		r.t.Errorf("a viewer's command has the status %d; asked: %v", no.status, r.api.seen("/v1/commands", "Bearer token-viewer"))
	}
	viewer.post(path, "action", "show").shows(r.t, "Your role is not sufficient")
	viewer.post("/key", "action", "search", "key", "uid="+secretUID).shows(r.t, "uid="+secretUID, "!Unblock …")

	r.as("operator").post(path+"/erase", "action", "do", "reason", "asked", "confirm", "uid="+secretUID).shows(r.t, "Your role is not sufficient")
	admin := r.as("admin")
	admin.get(path+"/erase").shows(r.t, "Type the key to confirm", "Erases the counts")
	admin.post(path+"/erase", "action", "do", "reason", "asked", "confirm", "uid=other").shows(r.t, "The key was not typed")
	admin.post(path+"/erase", "action", "do", "reason", "asked", "confirm", "uid="+secretUID).shows(r.t, "Erased uid=•••")
	admin.get("/key/"+strings.Repeat("A", 43)).shows(r.t, "This link names no key")
	admin.get(path+"/destroy").shows(r.t, "There is no such action")
	admin.post("/key", "action", "search", "key", "customer").shows(r.t, "This is not a key")
	admin.post("/key", "action", "search", "key", "uid=nobody-knows").shows(r.t, "Nothing was ever counted under this key", "nothing is enforced", "0 of 5")
}

// nothingLeaks looks for the user in all addresses that were asked for, and in the log.
func (r *keyRig) nothingLeaks() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.urls) < 20 {
		r.t.Errorf("%d addresses were seen", len(r.urls))
	}
	for _, at := range r.urls {
		plain, _ := url.QueryUnescape(at)
		if strings.Contains(plain, secretUID) || strings.Contains(plain, "4711") {
			r.t.Errorf("an address names a user: %s", at)
		}
	}
	if r.log.Has(secretUID) {
		r.t.Errorf("the log names a user:\n%s", &r.log)
	}
}

var blocksQuery = blocks.Query{}
