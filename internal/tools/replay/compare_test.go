package replay

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/tools/accesslog"
	"github.com/tallygate/tallygate/rules"
)

const ruleHead = "apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: t}\nspec:\n  rules:\n"

func compiled(t *testing.T, list ...string) *rules.Set {
	t.Helper()
	set, err := rules.Compile("rules.yaml", []byte(ruleHead+"    - "+strings.Join(list, "\n    - ")+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// compared counts events by two sets, of which the old one may be nil.
func compared(t *testing.T, now, old *rules.Set, events string) (*Result, string) {
	t.Helper()
	src, err := Files([]string{"-"}, strings.NewReader(events), accesslog.Lines{Format: accesslog.NDJSON})
	if err != nil {
		t.Fatal(err)
	}
	c := Compare(now, old)
	if err := c.Read(t.Context(), src); err != nil {
		t.Fatal(err)
	}
	r := c.Result()
	var out bytes.Buffer
	if err := r.write(&out, false); err != nil {
		t.Fatal(err)
	}
	return r, out.String()
}

// minutely is events of a user, one a minute.
func minutely(n int, more string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"uid":"42","api":"search.query","time":"2026-11-27T00:%02d:00Z"%s}`+"\n", i+1, more)
	}
	return b.String()
}

// The same key was hit by both: what differs are its events.
func TestALowerLimitDiffersByEvents(t *testing.T) {
	const rule = `{name: searches, match: {api: search.query}, limit: %d, per: 10m, then: {%s}}`
	for then, both := range map[string]int{"block: 10m": 0, "block: until-reset": 1} { // who passes a limit, and who reaches a quota
		low, high := compiled(t, fmt.Sprintf(rule, 3, then)), compiled(t, fmt.Sprintf(rule, 5, then))
		r, text := compared(t, low, high, minutely(6, ""))
		d := r.Against
		if d.Newly != 0 || d.Both != 1 || d.Events != (EventDiff{Newly: 2, Both: both}) || d.Harder != 1 || d.Milder != 0 {
			t.Errorf("%s: %+v", then, d)
		}
		if strings.Contains(text, "nothing differs") || !strings.Contains(text, fmt.Sprintf("2 events are covered or denied by the new rules only, 0 by the old ones only, %d by both", both)) ||
			!strings.Contains(text, "Hit by both, now harder\n") {
			t.Errorf("%s\n%s", then, text)
		}
		r, text = compared(t, high, low, minutely(6, ""))
		if d := r.Against; d.Events != (EventDiff{NoLonger: 2, Both: both}) || d.Milder != 1 || !d.Rules[0].Differs() {
			t.Errorf("the other way round: %+v\n%s", d, text)
		}
		if r, text := compared(t, low, low, minutely(6, "")); r.Against.Rules[0].Differs() || !strings.Contains(text, "of 1 rule nothing differs") {
			t.Errorf("with itself:\n%s", text)
		}
	}
}

// As many events, but others.
func TestOtherEventsDiffer(t *testing.T) {
	early := compiled(t, `{name: r, match: {api: search.query}, limit: 2, per: 1h, then: {block: 2m}}`)
	late := compiled(t, `{name: r, match: {api: search.query}, limit: 4, per: 1h, then: {block: 2m}}`)
	r, text := compared(t, early, late, minutely(7, ""))
	if d := r.Against.Rules[0]; !d.Differs() || d.EventsNewly == 0 {
		t.Errorf("%+v\n%s", d, text)
	}
}

// A rule that begins to enforce is a difference, though it hits the same.
func TestAnotherModeDiffers(t *testing.T) {
	const rule = `{name: r, match: {api: search.query}, limit: 2, per: 1h, mode: %s, then: {block: 1h}}`
	_, text := compared(t, compiled(t, fmt.Sprintf(rule, "enforce")), compiled(t, fmt.Sprintf(rule, "shadow")), minutely(4, ""))
	if strings.Contains(text, "nothing differs") || !strings.Contains(text, "r (enforce, before shadow)") {
		t.Error(text)
	}
}

// An event that two limits cover is one event, in all and of a key.
func TestAnEventIsCoveredOnce(t *testing.T) {
	const one = `{name: %s, key: %s, match: {api: search.query}, limit: 2, per: 1h, then: {block: 1h}}`
	set := compiled(t, fmt.Sprintf(one, "a", "uid"), fmt.Sprintf(one, "b", "uid"), fmt.Sprintf(one, "c", "ip"))
	r, text := compared(t, set, nil, minutely(5, `,"ip":"192.0.2.7"`))
	if r.Covered != 2 || !strings.Contains(text, "2 events (40%) covered by a verdict in force") {
		t.Error(text)
	}
	for _, k := range r.Top {
		if k.Covered != 2 {
			t.Errorf("%+v", k)
		}
	}
	for _, rule := range r.Rules {
		if rule.Covered != 2 {
			t.Errorf("%+v", rule)
		}
	}
}

func TestShares(t *testing.T) {
	for _, c := range []struct {
		part, whole int
		want        string
	}{{0, 0, "0%"}, {0, 9, "0%"}, {1, 1000, "0.1%"}, {15, 1000, "1.5%"}, {1, 6, "17%"}, {249, 300, "83%"}, {9999, 10000, "99%"}, {7, 7, "100%"}, {498, 300, "166%"}} {
		if got := Share(c.part, c.whole); got != c.want {
			t.Errorf("%d of %d: %s, want %s", c.part, c.whole, got, c.want)
		}
	}
}

// What events bring draws nothing on a terminal.
func TestKeysAreForeignText(t *testing.T) {
	set := compiled(t, `{name: r, match: {api: search.query}, limit: 1, per: 1h, then: {block: 1h}}`)
	var b strings.Builder
	for range 3 {
		b.WriteString(`{"uid":"x\u001b]0;owned\u0007\u202e","api":"search.query","time":"2026-11-27T00:01:00Z"}` + "\n")
	}
	_, text := compared(t, set, set, b.String())
	if strings.ContainsAny(text, "\x1b\x07\u202e") || !strings.Contains(text, `owned`) {
		t.Errorf("%q", text)
	}
}
