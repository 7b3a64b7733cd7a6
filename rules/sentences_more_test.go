package rules

import (
	"crypto/sha256"
	"errors"
	"strings"
	"testing"

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
