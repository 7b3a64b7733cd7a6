package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/tallygate/tallygate/internal/console/browsertest"
)

// A rule's owner tries a change, and an admin takes one back, on real servers and in a real browser. Who may not, has no
// button, and is refused.
func TestAChangeOfTheRulesIsClicked(t *testing.T) {
	b := browsertest.Start(t)
	w := startClicks(t)
	w.emits("42", 6)
	w.denies("42")
	owner := w.logsIn(b, "operator", "/key")
	owner.searches("uid=42")
	key := owner.path()
	w.tries(owner)
	w.rollsBack(b)
	w.mayNot(b, key)
}

// tries a change: it is checked, its tests run, and the events of the past hour are replayed against the rules that
// run. None of it changes them.
func (w *clickRig) tries(c *clicker) {
	w.emits("7", 3)
	w.caughtUp()
	c.opens("/try")
	c.types("limit: 5", "limit: many")
	c.sees("1 mistake")
	c.types("limit: many", "limit: 2")
	c.sees("Published, it would mean", "Judged anew")
	c.follows(`button[value=check]`)
	c.sees("valid: 1 rule", "Judged anew")
	if !c.has(`#try details[open]`) {
		c.click(`#try summary`)
	}
	c.fills("tests", "rule_files: [rules.yaml]\ntests:\n  - name: the third search blocks\n    events:\n      - {at: 0s, uid: u1, api: search.query, times: 3, every: 1s}\n"+
		"    expect:\n      - {at: 3s, uid: u1, api: search.query, verdict: block}\n")
	c.follows(`button[value=test]`)
	c.sees("1 test passed", "the third search blocks")
	c.click(`button[value=replay]`)
	c.sees("Replay against version 1", "Newly hit\n1", "uid=•••")
	if v := w.version(); v != 1 {
		w.t.Errorf("a try has made version %d", v)
	}
	if w.denied("7") {
		w.t.Error("a try has denied somebody")
	}
}

// rollsBack publishes another limit by the rule file, takes it back, and takes that back.
func (w *clickRig) rollsBack(b *browsertest.Browser) {
	text, err := os.ReadFile(w.rules)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.rules, []byte(strings.Replace(string(text), "limit: 5", "limit: 2", 1)), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.a.Signal(syscall.SIGHUP)
	eventually(w.t, "version 2 runs", func() bool { return w.version() == 2 })
	w.emits("7", 1)
	w.denies("7")

	c := w.logsIn(b, "admin", "/versions")
	for i, back := range []struct {
		to     int
		denied bool
		gone   string
	}{{1, false, "limit: 2"}, {2, true, "limit: 5"}} {
		next := i + 3
		link := fmt.Sprintf(`a[href="/versions/back?version=%d"]`, back.to)
		eventually(w.t, "the console knows what runs", func() bool { c.opens("/versions"); return c.has(link) })
		c.follows(link)
		c.sees(fmt.Sprintf("Roll back to version %d", back.to), "What would change", back.gone, "1 line added, 1 line removed")
		c.fills("reason", fmt.Sprintf("clicked: back to %d", back.to))
		c.follows(`form button.danger`)
		c.sees(fmt.Sprintf("Version %d runs, with the text of version %d.", next, back.to), fmt.Sprintf("clicked: back to %d", back.to))
		w.audits(`"rules"`, fmt.Sprintf(`"version":%d`, next), fmt.Sprintf(`"from":%d`, back.to), fmt.Sprintf("clicked: back to %d", back.to), "ann-admin")
		eventually(w.t, "it runs", func() bool { return w.version() == int64(next) })
		w.emits("7", 1)
		if back.denied {
			w.denies("7")
		} else {
			w.allows("7")
		}
	}
}

// mayNot looks for what a role has no button for, and asks for it by hand.
func (w *clickRig) mayNot(b *browsertest.Browser, key string) {
	w.emits("42", 3)
	w.denies("42")
	before, version := len(w.audit("command")), w.version()
	acts := []string{"unblock", "block", "reset", "exempt", "end-exemption", "erase"}
	for role, kept := range map[string]map[string]bool{"viewer": {}, "operator": {"unblock": true, "block": true, "reset": true, "exempt": true}} {
		c := w.logsIn(b, role, key)
		for _, act := range acts {
			if got := c.has(fmt.Sprintf(`a[href$="/%s"]`, act)); got != kept[act] && act != "end-exemption" {
				w.t.Errorf("a %s has a link to %s: %v", role, act, got)
			}
		}
		c.opens("/versions/back?version=1")
		if c.has("form button.danger") {
			w.t.Errorf("a %s has a button to roll back", role)
		}
		c.opens("/try")
		if got := c.has("button[value=replay]"); got != (role == "operator") {
			w.t.Errorf("a %s has a button to replay: %v", role, got)
		}
		c.opens("/")
		if got := c.has(`form[action="/"] button`); got != (role == "operator") {
			w.t.Errorf("a %s has a button to examine: %v", role, got)
		}
	}
	viewer, operator := w.posts("viewer"), w.posts("operator")
	for _, act := range acts {
		viewer(key+"/"+act, "action=do&reason=by+hand&for=1m&confirm=uid%3D42")
	}
	viewer(key, "action=show&reason=by+hand")
	viewer("/try", "action=replay&span=1h")
	viewer("/", "action=doctor")
	viewer("/cluster", "action=doctor")
	viewer("/versions/back?version=1", "action=back&version=1&seen=4&reason=by+hand")
	operator("/versions/back?version=1", "action=back&version=1&seen=4&reason=by+hand")
	operator(key+"/erase", "action=do&reason=by+hand&confirm=uid%3D42")
	if after := len(w.audit("command")); after != before || w.version() != version || !w.denied("42") {
		w.t.Errorf("%d commands more than before, and version %d", after-before, w.version())
	}
}
