package aggregate

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/rules"
)

// What check warns of stands in the log of who runs the rules.
func TestWarningsOfTheRulesAreLogged(t *testing.T) {
	const text = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - {name: monthly, match: {api: x}, limit: 10, per: PER, window: tumbling, then: {block: 5m}}
`
	for per, want := range map[string]int{"1d": 0, "30d": 1} {
		set, err := rules.Compile("rules.yaml", []byte(strings.Replace(text, "PER", per, 1)))
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		b := &rulebook{log: slog.New(slog.NewTextHandler(&log, nil))}
		b.warnOf(set, 3, &ruleRecord{api.RuleRecord{File: "rules.yaml"}})
		if got := strings.Count(log.String(), "level=WARN"); got != want || want > 0 && !strings.Contains(log.String(), "per: month") {
			t.Errorf("%s: %s", per, log.String())
		}
	}
}
