package browsertest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/chromedp/chromedp"
)

// axe is the text of axe-core, which scripts/axe.sh fetches.
var axe = sync.OnceValues(func() (string, error) {
	path, err := script("axe.sh")
	if err != nil {
		return "", err
	}
	out, err := exec.Command(path).Output()
	if err != nil {
		return "", fmt.Errorf("fetch axe-core: %w", err)
	}
	text, err := os.ReadFile(strings.TrimSpace(string(out)))
	return string(text), err
})

// violation is axe's report of a rule that the page breaks.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string
		Target         []any
		FailureSummary string
	}
}

// Axe fails the test for each rule of accessibility that the page breaks. It skips the rest of the test where
// axe-core cannot be fetched, unless TALLYGATE_TEST_REQUIRE is set.
func (p *Page) Axe(about string) {
	p.t.Helper()
	text, err := axe()
	if err != nil && os.Getenv("TALLYGATE_TEST_REQUIRE") != "1" {
		p.t.Skip(err)
	} else if err != nil {
		p.t.Fatal(err)
	}
	p.Run(chromedp.Evaluate[chromedp.Void](text))
	out := Get(p, chromedp.Evaluate[string](`axe.run(document, {resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations))`, chromedp.EvalAwaitPromise))
	var all []violation
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		p.t.Fatalf("read what axe says: %v", err)
	}
	for _, v := range all {
		for _, n := range v.Nodes {
			p.t.Errorf("%s: axe: %s (%s): %s\n%.300s\n%s", about, v.ID, v.Impact, v.Help, n.HTML, n.FailureSummary)
		}
	}
}
