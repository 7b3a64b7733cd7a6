package rules

import (
	"errors"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
)

// What a group runs goes on, though a file may not have it any more; it means what it meant, and is told with what to write.
func TestAPublishedSourceKeepsItsMeaning(t *testing.T) {
	noFiles := func(string) ([]byte, error) { return nil, errNoFiles }
	const good = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - {name: rate, match: {api: login}, limit: 3, per: 1m, then: {block: until-reset}}
`
	counts := func(set *Set) (n int) {
		e := &event.Event{UID: "42", API: "login", Outcome: "7", Cost: event.One, Time: noon}
		for _, w := range set.NewMatcher().Match(e, e.Time) {
			n += len(w.Hits)
		}
		return n
	}
	for name, tt := range map[string]struct {
		from, to string
		hits     int
		says     string
		line     int
	}{
		"a comparison that never holds":  {"limit: 3", "when: uid == 42, limit: 3", 0, `text stands in quotes: "42"`, 6},
		"one that always does":           {"limit: 3", "when: uid != 42, limit: 3", 1, `text stands in quotes: "42"`, 6},
		"a regular expression":           {"api: login", `api: "^login$"`, 0, "write login", 6},
		"a number that YAML has guessed": {"api: login", "api: login, outcome: 007", 1, `put it into quotes: "007"`, 6},
		"an invisible character":         {"api: login", "api: log\u200bin", 0, "remove it", 6},
	} {
		t.Run(name, func(t *testing.T) {
			src := []byte(strings.Replace(good, tt.from, tt.to, 1))
			_, err := CompileWith("rules.yaml", src, noFiles)
			var mistakes Errors
			if !errors.As(err, &mistakes) || len(mistakes) != 1 || mistakes[0].Line != tt.line || !strings.Contains(mistakes[0].Hint, tt.says) {
				t.Fatalf("a file with it: %v", err)
			}
			set, err := CompilePublished("rules.yaml", src, noFiles)
			if err != nil {
				t.Fatalf("a published version with it: %v", err)
			}
			if len(set.Outdated) != 1 || set.Outdated[0].Error() != mistakes[0].Error() {
				t.Errorf("it is told as %v, want %v", set.Outdated, mistakes)
			}
			if got := counts(set); got != tt.hits {
				t.Errorf("an event counts under %d limits, want %d", got, tt.hits)
			}
			if set.Hash != setHash(src, nil) {
				t.Error("it is another set")
			}
		})
	}
	for _, bad := range []string{"limt: 3", "window: slidin, limit: 3", "when: uid ==, limit: 3"} {
		if _, err := CompilePublished("rules.yaml", []byte(strings.Replace(good, "limit: 3", bad, 1)), noFiles); err == nil {
			t.Errorf("what has no meaning is accepted: %s", bad)
		}
	}
	set, err := CompilePublished("rules.yaml", []byte(good), noFiles)
	if err != nil || len(set.Outdated) != 0 || counts(set) != 1 {
		t.Errorf("a good one: %v, %v", err, set.Outdated)
	}
}
