package emitcmd

import (
	"strings"
	"testing"
)

// A file whose events say user instead of uid was sent without a word, and no rule counted it.
func TestEventsThatLookLikeAMistakeAreWarnedOfOnce(t *testing.T) {
	c := newCommand(t)
	in := `{"uid":"42","api":"a"}
{"user":"42","api":"a"}
{"user":"43","api":"a"}
{"uid":"42","api":"a","time":1795000000}
`
	if code := c.run(t.Context(), strings.NewReader(in), "-"); code != 0 {
		t.Fatalf("exit status %d: %s", code, &c.stderr)
	}
	if n := c.stderr.Count("looks like a mistake"); n != 2 || !c.stderr.Has(":2: warning: this looks like a mistake: events have no uid") || !c.stderr.Has(":4: warning: this looks") {
		t.Errorf("%d warnings:\n%s", n, &c.stderr)
	}
	if n := c.count(topic); n != 4 {
		t.Errorf("%d events are sent, want all", n)
	}
}
