package rules

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/windows"
)

// Sentences that no story can tell: they speak of files.
func TestSentencesOnFiles(t *testing.T) {
	const head = "apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: shop}\nspec:\n"
	t.Run("The zone data is embedded, and its version is part of the set's hash", func(t *testing.T) {
		src := head + "  rules: [{name: a, match: {api: x}, limit: 1, per: 1h, then: {block: 1h}}]\n"
		of := func(version string) [32]byte {
			return sha256.Sum256([]byte("tallygate rule set 1\x00zones " + version + "\x00" + src))
		}
		if set := compiled(t, src); set.Hash != of(windows.ZoneVersion) || set.Hash == of("2000a") {
			t.Errorf("the hash is %x", set.Hash)
		}
		t.Setenv("ZONEINFO", t.TempDir()) // where another program would look
		if _, err := windows.LoadZone("Pacific/Apia"); err != nil {
			t.Error(err)
		}
	})
	t.Run("exempt: inline or from a file", func(t *testing.T) {
		files := map[string]string{"vip.yaml": "- {uid: 42, reason: ours}\n"}
		src := head + "  rules:\n    - {name: a, match: {api: x}, limit: 1, per: 1h, exempt: vip.yaml, then: {block: until-reset}}\n"
		set, err := CompileWith("rules.yaml", []byte(src), func(name string) ([]byte, error) { return []byte(files[name]), nil })
		if err != nil {
			t.Fatal(err)
		}
		if x := set.Explain(counted6(t, set), []byte("uid=42"), noon, ""); len(x) != 1 || !x[0].Exempt || x[0].Verdict != nil {
			t.Errorf("%+v", x)
		}
	})
	office := func(text, more string) (*Set, error) {
		src := head + "  networks: {office: lists/office.txt" + more + "}\n  rules:\n    - {name: a, key: ip, match: {api: x}, limit: 1, per: 1h, exempt: [{ip: office, reason: r}], then: {block: 1h}}\n"
		return CompileWith("rules.yaml", []byte(src), func(name string) ([]byte, error) {
			return []byte(map[string]string{"lists/office.txt": text}[name]), nil
		})
	}
	t.Run("A file of networks has one in each line; what stands behind a # is a comment, and blank lines are skipped", func(t *testing.T) {
		set, err := office("# ours\n10.0.0.0/8 # Berlin\n\n  192.0.2.1\n", "")
		if err != nil {
			t.Fatal(err)
		}
		for ip, want := range map[string]bool{"10.1.1.1": true, "192.0.2.1": true, "192.0.2.2": false} {
			if got := set.Rules[0].exemptKeys.covers([]event.Dim{{Name: "ip", Value: ip}}, noon); got != want {
				t.Errorf("%s is exempt: %v", ip, got)
			}
		}
	})
	t.Run("An empty file is a mistake; one with only a comment is a list without networks", func(t *testing.T) {
		if _, err := office("", ""); err == nil || !strings.Contains(err.Error(), "lists/office.txt is empty") {
			t.Errorf("%v", err)
		}
		if set, err := office("# none\n", ""); err != nil || set.Rules[0].exemptKeys.covers([]event.Dim{{Name: "ip", Value: "10.0.0.1"}}, noon) {
			t.Errorf("%v", err)
		}
	})
	t.Run("check shows bad lines with their places, the first 20 of a file", func(t *testing.T) {
		_, err := office("10.0.0.0/8\n  ten\n"+strings.Repeat("x\n", 50), "")
		mistakes, ok := errors.AsType[Errors](err)
		if !ok || len(mistakes) != 21 || mistakes[0].File != "lists/office.txt" || mistakes[0].Line != 2 || mistakes[0].Column != 3 {
			t.Errorf("%v", err)
		}
	})
	t.Run("There are at most 100 lists, with at most 100,000 networks in all", func(t *testing.T) {
		if _, err := office(strings.Repeat("10.0.0.0/8\n", 100_000), ""); err != nil {
			t.Error(err)
		}
		if _, err := office(strings.Repeat("10.0.0.0/8\n", 100_000), ", one: [10.0.0.0/8]"); err == nil || !strings.Contains(err.Error(), "more than 100000 networks") {
			t.Errorf("%v", err)
		}
		more := ""
		for i := range 99 {
			more += fmt.Sprintf(", l%d: [10.0.0.0/8]", i)
		}
		if _, err := office("10.0.0.0/8\n", more); err != nil {
			t.Error(err)
		}
		if _, err := office("10.0.0.0/8\n", more+", last: [10.0.0.0/8]"); err == nil || !strings.Contains(err.Error(), "more than 100 lists") {
			t.Errorf("%v", err)
		}
	})
	t.Run("Such a file is part of the published version", func(t *testing.T) {
		one, err1 := office("10.0.0.0/8\n", "")
		two, err2 := office("10.0.0.0/9\n", "")
		if err1 != nil || err2 != nil || one.Hash == two.Hash || string(two.Files["lists/office.txt"]) != "10.0.0.0/9\n" {
			t.Errorf("%v %v %v", err1, err2, two.Files)
		}
	})
	t.Run("every error at once (file:line:column, the line, a caret, what was expected, “did you mean”)", func(t *testing.T) {
		src := head + "  rules:\n    - {name: a, match: {api: x}, limit: two, per: 1h, wrn: [50 %]}\n"
		_, err := Compile("rules.yaml", []byte(src))
		mistakes, ok := errors.AsType[Errors](err)
		if !ok || len(mistakes) != 2 {
			t.Fatalf("%v", err)
		}
		for _, want := range []string{
			"rules.yaml:6:41: limit: \"two\" is not a number\n    " +
				"    - {name: a, match: {api: x}, limit: two, per: 1h, wrn: [50 %]}\n    " + strings.Repeat(" ", 40) + "^\n" +
				"    hint: write it as 100, 100k or 1MiB",
			"rules.yaml:6:55: unknown field \"wrn\"; did you mean \"warn\"?",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("it does not say\n%s\nbut\n%v", want, err)
			}
		}
	})
}
