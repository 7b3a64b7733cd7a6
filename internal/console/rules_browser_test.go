package console

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/tallygate/tallygate/internal/console/browsertest"
	"github.com/tallygate/tallygate/internal/console/workbench"
	"github.com/tallygate/tallygate/internal/run/access"
)

// seen is a group of five hundred rules and three versions, whose last change is a number and a rule less.
func seen() *group {
	return &group{texts: []string{shopRules(500, "90"), shopRules(500, "100"), shopRules(499, "10")}}
}

// Every page about rules and data: everybody can use it, it complains about nothing, and it is small.
func TestRulesInABrowser(t *testing.T) {
	for name, path := range map[string]string{
		"rules": "/rules", "rule": "/rules/rule-001?at=80", "versions": "/versions", "diff": "/versions/diff?from=2&to=3", "sides": "/versions/diff?from=1&to=2&view=sides",
		"back": "/versions/back?version=2", "try": "/try?rule=rule-001", "quality": "/quality",
	} {
		t.Run(name, func(t *testing.T) {
			b := browsertest.Start(t)
			of := seen()
			if name == "diff" || name == "sides" || name == "back" { // they show each line that differs: axe takes its time with thousands
				of = &group{texts: []string{shopRules(20, "90"), shopRules(20, "100"), shopRules(19, "10")}}
			}
			s := serve(t, of, access.Admin, workbench.Config{Events: pastEvents(3000)})
			for look, how := range looks {
				about := fmt.Sprint(name, " ", look)
				p := b.Open(s.URL+path, how)
				p.Axe(about)
				if n := p.Bytes(); n == 0 || n > mostBytes {
					t.Errorf("%s: %d bytes over the wire; at most %d", about, n, mostBytes)
				} else if look == "light" {
					t.Logf("%s: %d bytes over the wire, seen after %v", about, n, p.FirstPaint())
				}
				if look == "light" && (name == "try" || name == "quality") {
					p.Golden(name + "-" + look)
				}
			}
		})
	}
}

// Mistakes are shown while somebody types, with links to their lines; a replay tells how far it is, and its result
// stands on the page.
func TestTryInABrowser(t *testing.T) {
	b := browsertest.Start(t)
	s := serve(t, &group{texts: []string{shopRules(3, "100")}}, access.Admin, workbench.Config{Events: pastEvents(3000)})
	p := b.Open(s.URL+"/try", browsertest.Look{})
	is := func(what, expression string) {
		t.Helper()
		if !browsertest.Get(p, chromedp.Poll[bool](expression)) {
			t.Errorf("it is not so that %s", what)
		}
	}
	typed := func(from, to string) string {
		return fmt.Sprintf(`(() => { const a = document.getElementById("f-rules"); a.value = a.value.replaceAll(%q, %q); a.dispatchEvent(new Event("input", {bubbles: true})); return true })()`, from, to)
	}
	is("the lines have numbers", `document.querySelector("[data-gutter=f-rules]").textContent.startsWith("1\n2\n3")`)
	is("somebody types", typed("limit: 100", "limit: many"))
	is("the mistakes are shown", `document.querySelectorAll("#try-check .mistakes li").length === 3`)
	p.Axe("mistakes")
	is("a mistake is chosen", `(() => { document.querySelector("#try-check a.place").click(); return true })()`)
	is("its place is marked", `(() => { const a = document.getElementById("f-rules"); return document.activeElement === a && a.value.slice(a.selectionStart, a.selectionEnd) === "many" })()`)
	is("somebody types", typed("limit: many", "limit: 250"))
	is("what it would mean is shown", `document.getElementById("try-check").textContent.includes("Judged anew")`)
	is("a replay begins", `(() => { document.querySelector("button[value=replay]").click(); return true })()`)
	is("its result is shown", `document.getElementById("try-result").textContent.includes("No longer hit") && !!document.querySelector("a[download='replay.json']")`)
	p.Axe("a replay's result")
	is("somebody types", typed("limit: 250", "limit: suggest"))
	is("numbers are looked for", `(() => { document.querySelector("button[value=suggest]").click(); return true })()`)
	is("they are shown", `document.getElementById("try-result").textContent.includes("The rules with these numbers") && !!document.querySelector("a[download='suggested.json']")`)
	p.Axe("suggested numbers")
	if text := p.Text(); strings.Contains(text, "user-1") {
		t.Error("a key is not masked")
	}
}

// Without scripts everything can be read, and the forms work.
func TestRulesWithoutScripts(t *testing.T) {
	b := browsertest.Start(t)
	s := serve(t, seen(), access.Admin, workbench.Config{Events: pastEvents(3000)})
	look := browsertest.Look{NoScript: true}
	for path, want := range map[string][]string{
		"/rules?only=fuse+blown": {"1 of 499 rules", "rule-002"}, "/rules/rule-001?at=80": {"At 80 instead, 22 keys more"}, "/versions": {"alice (by console)"},
		"/versions/diff?from=2&to=3": {"Gone rules", "rule-499"}, "/quality": {"serch.query", "did you mean"},
	} {
		if text := b.Open(s.URL+path, look).Text(); !containsAll(text, want...) {
			t.Errorf("%s: %.2000s", path, text)
		}
	}
	p := b.Open(s.URL+"/try", look)
	p.Run(chromedp.Click(chromedp.CSS("button[value=check]")), chromedp.WaitVisible(chromedp.CSS("#try-check .verdict")))
	if text := p.Text(); !strings.Contains(text, "valid: 499 rules") {
		t.Errorf("%.2000s", text)
	}
}
