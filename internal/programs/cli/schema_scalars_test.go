package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tallygate/tallygate/rules"
)

// The schema and check accept the same of what people write as a number, a duration, a share or a name. An editor
// called 1_000 good, which check refused, and 0x10 and .inf the other way round.
func TestSchemaAndCheckAcceptTheSameScalars(t *testing.T) {
	t.Parallel()
	schema := ruleSchema(t)
	numbers := strings.Fields(`1 100 1_000 1_000_000 "1_000" 0x10 0o17 0b11 1e3 1E3 1.0 5. +5 .inf -.inf .nan 0 0.0 -1 "100" "0" "00" 1k 1K 1kB 1Ki 1KiB 1kiB 1ki 1M 1m 1MB 1Mi
		1G 1GiB 100B 1.5k 0k "" 100% true ~ [1] {a: 1} 1/s 1_ _1 1__0 9000000000000 9000000000001 abc 1,000`)
	durations := strings.Fields(`1m 1h30m 1h30 60 0 0s 1d12h 1M 1mn 0.5h 1_0m .inf 1e3 0x10 "" "1m" "0" "60" 500ms 1y 7d 1s1m true ~ [1m] until-midnight`)
	for field, scalars := range map[string][]string{
		"limit: @, per: 1m, then: {block: 1m}":                                              numbers,
		"limit: 5, per: 1m, then: {block: 1m}, candidate: {limit: @}":                       numbers,
		"limit: 5, per: 1m, then: {block: 1m}, tiers: [{when: cost > 1, limit: @}]":         numbers,
		"limit: 5, per: 1m, window: bucket, then: {block: 1m}, burst: @":                    numbers,
		"limit: 5, per: 1m, window: bucket, then: {block: until-reset}, debt: @":            numbers,
		"limit: 5, per: 1m, then: {block: 1m}, count: {sum: cost}, resolution: 1s, key: ip": {"1"},
		"limit: 5, per: @, then: {block: 1m}":                                               durations,
		"limit: 5, per: 1m, then: {block: @}":                                               durations,
		"limit: 5, gap: @, window: session, then: {block: 1m}":                              durations,
		"limit: 5, per: @, window: from-first, then: {block: 1m}":                           durations,
		"limit: 5, per: 1m, then: {escalate: [1m, @], forget: 1d}":                          durations,
		"limit: 5, per: 1m, then: {block: 1m}, fuse: @":                                     strings.Fields(`5% 100% 101% 0% 0.5% 12.5% 5 0.05 1k% 1_0% "5%" .inf % -5% 00% 0.0% 100.0% 100.5% ~ true`),
		"limit: 5, per: 1m, then: {block: 1m}, refunds: @":                                  strings.Fields(`true false True yes on 1 "true" ~ .inf`),
		"limit: 5, per: 1m, then: {block: 1m}, when: @":                                     strings.Fields(`true 1 .inf "" ~ [true]`),
		"limit: 5, per: 1m, then: {block: 1m, extend: @}":                                   strings.Fields(`true false yes 1 "true" ~`),
	} {
		for _, scalar := range scalars {
			agree(t, schema, "{name: a, match: {api: a}, "+strings.Replace(field, "@", scalar, 1)+"}", "")
		}
	}
	const rest = ", limit: 5, per: 1m, then: {block: 1m}}"
	for _, scalar := range strings.Fields(`a 42 "42" -1 1.5 .inf true ~ A a_b [a] ""`) {
		if scalar != "true" { // a name for check, and a mistake for the schema
			agree(t, schema, "{name: "+scalar+", match: {api: a}"+rest, "")
		}
	}
	for _, scalar := range strings.Fields(`1 1_000 0x10 1k 1.5k 1.5 0 -1 .inf "5" "0" ~ true 1e2 1.0`) {
		agree(t, schema, "{name: a, match: {api: {a: "+scalar+"}}"+rest, "")
	}
	for _, scalar := range strings.Fields(`x 42 0x10 1_000 1.5 true .inf -.inf .nan ~ [1,x] [] {}`) {
		agree(t, schema, "{name: a, match: {api: a, outcome: "+scalar+", attrs.x: "+scalar+"}"+rest, "")
	}
	for _, scalar := range strings.Fields(`0 64 1024 1025 0x10 1_000 1e2 1.5 -1 .inf "64" "2000" 1k ~ true`) {
		agree(t, schema, "{name: a, match: {api: a}"+rest, "  recent_ids: {count: "+scalar+"}\n")
	}
}

func agree(t *testing.T, schema *jsonschema.Schema, rule, spec string) {
	t.Helper()
	src := "apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: a}\nspec:\n" + spec + "  rules:\n    - " + rule + "\n"
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	_, check := rules.Compile(path, []byte(src))
	editor := validate(t, schema, path)
	if (check == nil) != (editor == nil) {
		t.Errorf("%s%s\ncheck: %v\nschema: %v", spec, rule, check, editor)
	}
}
