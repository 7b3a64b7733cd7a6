package workbench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/api"
)

const limited = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - name: searches
      key: uid
      match: {api: search}
      limit: LIMIT
      per: 1m
      window: sliding
      then: {block: 5m}
`

func rulesOf(limit string) string { return strings.Replace(limited, "LIMIT", limit, 1) }

func TestMistakesAreTheCommandsWithTheirPlaces(t *testing.T) {
	b := New(Config{})
	result, set, err := b.Check(t.Context(), rulesOf("ten"), nil)
	if err != nil || set != nil || result.OK || len(result.Errors) != 1 {
		t.Fatalf("%+v, %v", result, err)
	}
	e := result.Errors[0]
	if e.Line != 9 || e.Column != 14 || e.File != RulesFile || !strings.Contains(e.Error(), "\n    "+strings.Repeat(" ", 13)+"^") {
		t.Errorf("%s", e)
	}
	if result, set, err = b.Check(t.Context(), rulesOf("10"), nil); err != nil || set == nil || !result.OK || result.Rules != 1 {
		t.Errorf("%+v, %v", result, err)
	}
}

// A text that takes long holds up nobody: its check ends.
func TestChecksEndInTime(t *testing.T) {
	b := New(Config{CheckWithin: time.Nanosecond})
	_, set, err := b.Check(t.Context(), rulesOf("10"), nil)
	if refusal, ok := errors.AsType[*Refusal](err); !ok || set != nil || !strings.Contains(refusal.Detail, "tallygate check") {
		t.Errorf("%v, %v", set, err)
	}
}

// A rule file can name others. In the browser these may only be those of the published version, whatever the name.
func TestRulesReadNoFileFromDisk(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	secret := filepath.Join(folder, "secret.txt")
	if err := os.WriteFile(secret, []byte("10.0.0.0/8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", filepath.Join(folder, "root")); err != nil {
		t.Fatal(err)
	}
	text := func(name string) string {
		return strings.Replace(rulesOf("10"), "  rules:", "  networks: {office: "+name+"}\n  exempt: {file: "+name+"}\n  rules:", 1)
	}
	published := &api.Rules{RuleRecord: api.RuleRecord{Files: map[string][]byte{"office.txt": []byte("10.0.0.0/8\n")}}}
	b := New(Config{})
	for _, name := range []string{"secret.txt", "./secret.txt", secret, "../" + filepath.Base(folder) + "/secret.txt", "root" + secret, "/etc/passwd", "file:///etc/passwd", "office.txt/../secret.txt", "'\\\\host\\share'"} {
		result, _, err := b.Check(t.Context(), text(name), published)
		if err != nil || result.OK {
			t.Fatalf("%s: %+v, %v", name, result, err)
		}
		found := false
		for _, e := range result.Errors {
			found = found || strings.HasPrefix(e.Message, "read networks from") && strings.HasSuffix(e.Message, "file does not exist")
			if strings.Contains(e.Error(), "root:") || strings.Contains(e.SourceLine, "10.0.0.0/8") {
				t.Errorf("%s: it tells what is in the file: %s", name, e)
			}
		}
		if !found {
			t.Errorf("%s: %v", name, result.Errors)
		}
		tests, err := b.Test(t.Context(), rulesOf("10"), "rule_files: ["+name+"]\ntests: [{name: a, expect: [{at: 0s, uid: u1, api: search, verdict: none}]}]", published)
		if err != nil || len(tests.Mistakes) > 0 || len(tests.Results) != 1 {
			t.Errorf("rule_files: [%s] stands for the rules on the page: %+v, %v", name, tests, err)
		}
	}
	one := strings.Replace(rulesOf("10"), "  rules:", "  networks: {office: office.txt}\n  rules:", 1)
	if result, _, err := b.Check(t.Context(), one, published); err != nil || !result.OK {
		t.Errorf("a file of the published version: %v, %v", result.Errors, err)
	}
}

func TestTestsRun(t *testing.T) {
	const tests = `rule_files: [rules.yaml]
tests:
  - name: two pass, the third does not
    events: [{at: 0s, uid: u1, api: search, times: 3, every: 1s}]
    expect: [{at: 2s, uid: u1, api: search, verdict: VERDICT}]
`
	b := New(Config{TestEvents: 10})
	for verdict, failed := range map[string]int{"block": 0, "none": 1} {
		ran, err := b.Test(t.Context(), rulesOf("2"), strings.Replace(tests, "VERDICT", verdict, 1), nil)
		if err != nil || len(ran.Mistakes) > 0 || len(ran.Results) != 1 || ran.Failed() != failed {
			t.Errorf("%s: %+v, %v", verdict, ran, err)
		}
	}
	for name, c := range map[string]struct{ rules, tests, want, file string }{
		"no YAML":         {rulesOf("2"), "a: [", "not valid YAML", TestsFile},
		"bad rules":       {rulesOf("two"), strings.Replace(tests, "VERDICT", "none", 1), "two", RulesFile},
		"too many events": {rulesOf("2"), strings.Replace(tests, "times: 3", "times: 1000000", 1), "more than 10 events together", TestsFile},
		"two files":       {rulesOf("2"), strings.Replace(tests, "[rules.yaml]", "[rules.yaml, /etc/passwd]", 1), "leave one name", TestsFile},
	} {
		ran, err := b.Test(t.Context(), c.rules, c.tests, nil)
		if err != nil || len(ran.Mistakes) == 0 || len(ran.Results) > 0 {
			t.Errorf("%s: %+v, %v", name, ran, err)
			continue
		}
		if got := ran.Mistakes[0]; !strings.Contains(got.Error(), c.want) || got.File != c.file {
			t.Errorf("%s: %v", name, ran.Mistakes)
		}
	}
}

// What strangers send costs a moment, and no more.
func TestHostileTextsAreRefused(t *testing.T) {
	b := New(Config{})
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for i, c := range "bcdefghi" {
		bomb += string(c) + ": &" + string(c) + " [" + strings.TrimSuffix(strings.Repeat("*"+string(rune('a'+i))+",", 10), ",") + "]\n"
	}
	bomb = strings.Replace(rulesOf("10"), "match: {api: search}", "match: {api: *i}", 1) + "x: 1\n"
	for name, text := range map[string]string{
		"deep":       strings.Repeat("[", 100_000),
		"bomb":       bomb,
		"control":    "\x00\x01",
		"not UTF-8":  "\xff\xfe",
		"1.5 MB":     strings.Repeat("# a comment\n", 125_000),
		"long line":  rulesOf("10") + "# " + strings.Repeat("x", 900_000) + "\n  bad",
		"many rules": strings.Repeat("- name: x\n", 100_000),
	} {
		began := time.Now()
		result, set, err := b.Check(t.Context(), text, nil)
		if took := time.Since(began); err != nil || set != nil || len(result.Errors) == 0 || took > 20*time.Second {
			t.Errorf("%s: %d errors, %v, in %v", name, len(result.Errors), err, took)
		}
		for _, e := range result.Errors {
			if len(e.Error()) > 4096 {
				t.Errorf("%s: an error of %d bytes", name, len(e.Error()))
			}
		}
	}
	_, _, err := b.Check(t.Context(), strings.Repeat("x", 10<<20), nil)
	if refused, ok := errors.AsType[*Refusal](err); !ok || refused.Busy {
		t.Errorf("10 MB: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	b.checks <- struct{}{}
	b.checks <- struct{}{}
	if _, _, err := b.Check(ended, rulesOf("10"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a reader who left while others check: %v", err)
	}
}

func TestTestsEndInTime(t *testing.T) {
	b := New(Config{TestWithin: time.Nanosecond})
	_, err := b.Test(t.Context(), rulesOf("2"), "rule_files: [r.yaml]\ntests: [{name: a, events: [{at: 0s, uid: u, api: search, times: 1000}], expect: [{at: 2s, uid: u, api: search, verdict: block}]}]", nil)
	if refused, ok := errors.AsType[*Refusal](err); !ok || !strings.Contains(refused.Detail, "take more than") {
		t.Errorf("%v", err)
	}
}
