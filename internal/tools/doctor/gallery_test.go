package doctor

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/pipeline/aggregate"
)

// yearly needs verdicts for longer than the default.
const yearly = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: yearly}
spec:
  rules:
    - {name: free-tier, match: {api: "*"}, limit: 5, per: year, window: calendar, timezone: UTC, then: {block: until-reset}}
    - {name: bucket, match: {api: "*"}, window: bucket, limit: 1, per: 1d, burst: 100, debt: 9, then: {block: until-reset}}
`

// What an aggregator creates for rules is what doctor wants for them: for each rule of the gallery, and
// for rules that block for very long.
func TestTopicsThatTheAggregatorCreated(t *testing.T) {
	t.Parallel()
	s := stack(t)
	files, err := filepath.Glob("../../../testdata/rules/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	for _, path := range append(files, writeFile(t, yearly)) {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		if strings.HasSuffix(name, "_test") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			set, file, err := aggregator.LoadRules(path)
			if err != nil {
				t.Fatal(err)
			}
			a, err := aggregate.New(aggregate.Config{Brokers: s.Kafka, Rules: set, RuleFile: file, Prefix: name, Partitions: 1})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.Prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
			examined := 0
			for _, r := range examine(t, Config{Kafka: brokers(s.Kafka...), Prefix: name, Rules: path}).Results {
				switch r.Name {
				case "rules", "topics", "retention", "state-size":
					if examined++; r.Status != OK {
						t.Errorf("%s: %v: %s -> %s", r.Name, r.Status, r.Detail, r.Fix)
					}
				}
			}
			if examined != 4 {
				t.Errorf("%d checks", examined)
			}
		})
	}
}
