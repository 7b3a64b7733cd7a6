package rules

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
)

// findings are the mistakes and warnings of a file with one rule, whose fields are given.
func findings(t *testing.T, rule string) (all []string, refused bool) {
	t.Helper()
	set, err := Compile("x.yaml", []byte(header+"  rules:\n    - {name: r, "+rule+"}\n"))
	if err != nil {
		list, ok := errors.AsType[Errors](err)
		if !ok {
			t.Fatal(err)
		}
		for _, e := range list {
			if e.Line == 0 || e.Column == 0 {
				t.Errorf("without a place: %v", e)
			}
			all = append(all, e.Message+" | "+e.Hint)
		}
		return all, true
	}
	for _, w := range set.Warnings {
		if !strings.Contains(w.Message, "counts only some events") {
			all = append(all, w.Message+" | "+w.Hint)
		}
	}
	return all, false
}

// What cannot mean what it says is told, and refused where it can never count.
func TestWhatCannotMeanWhatItSays(t *testing.T) {
	const then = ", limit: 10, per: 1h, then: {block: 1h, apis: [b]}"
	for _, test := range []struct {
		rule, want string
		refused    bool
	}{
		// names
		{"match: {api: x}, key: attrs.a|attrs.b" + then, "no expression", true},
		{"match: {api: x}, key: ['attrs.!a']" + then, "no expression", true},
		{"match: {api: x}, count: {sum: attrs.qty * attrs.price}" + then, "emitted as one of its own", true},
		{"match: {api: x}, count: {sum: attrs.a+b}" + then, "no expression", true},
		{"match: {api: x}, count: {sum: 'attrs.max(a)'}" + then, "no expression", true},
		{"match: {api: x}, count: {distinct: 'attrs.a, b'}" + then, "several are a list", true},
		{"match: {api: x}, count: {distinct: attrs.user agent}" + then, "blank in its name", false},
		{"match: {api: x, 'attrs.amount>': 5}" + then, "written in `when`", true},
		{"match: {api: x, attrs: {'rows <': 5}}" + then, "written in `when`", true},
		{"match: {api: x}, limit: {from: attrs.a * 2, else: 1, most: 9}, per: 1h, then: {block: 1h}", "no expression", true},
		// values
		{"match: {api: x, attrs.plan: '*'}" + then, "attrs.plan != nil", false},
		{"match: {api: x, attrs.plan: 'p*'}" + then, `startsWith "p"`, false},
		{"match: {api: x, attrs.plan: '!pro'}" + then, `attrs.plan != "pro"`, true},
		{"match: {api: x, attrs.plan: [free, '!pro']}" + then, `attrs.plan != "pro"`, true},
		{"match: {api: x, attrs.rows: '>= 100'}" + then, "when: attrs.rows >= 100", true},
		{"match: {api: x, attrs.plan: a|b}" + then, "[a, b]", false},
		{"match: {api: x, outcome: '!success'}" + then, `outcome != "success"`, true},
		{"match: {api: x, outcome: [401, 4xx]}" + then, `startsWith "4"`, false},
		{"match: {api: x, outcome: 'fail*'}" + then, "matches only this very text", false},
		{"match: {api: ['*', '!get.health']}" + then, `api != "get.health"`, true},
		{"match: {api: ['*', '!get.*']}" + then, `api startsWith "get."`, true},
		{"match: {api: x}, reset_on: {api: x, attrs.plan: '!pro'}" + then, `attrs.plan != "pro"`, true},
		{"match: {api: x, attrs.version: 1.10}" + then, "the number 1.1,", false},
		{"match: {api: x, attrs.hash: 12e4}" + then, "the number 120000,", false},
		{"match: {api: x, attrs.color: 0xFF}" + then, "the number 255,", false},
		{"match: {api: x, attrs.dial: +49}" + then, "the number 49,", false},
		{"match: {api: x, outcome: 1_000}" + then, "the number 1000,", false},
		// predicates by themselves
		{"match: {api: x}, when: time.Hour() >= 22 and time.Hour() < 6" + then, "goes over the end", true},
		{"match: {api: x}, when: 'time.In(timezone(\"Asia/Tokyo\")).Hour() > 22 && time.In(timezone(\"Asia/Tokyo\")).Hour() < 5'" + then, "goes over the end", true},
		{"match: {api: x}, when: time.Hour() == 24" + then, "from 0 to 23, and never 24", true},
		{"match: {api: x}, when: 'time.Hour() in [22, 23, 24]'" + then, "never 24", true},
		{"match: {api: x}, when: time.Hour() > 23" + then, "never > 23", true},
		{"match: {api: x}, when: int(time.Weekday()) == 7" + then, "from 0 to 6", true},
		{"match: {api: x}, when: int(time.Month()) == 0" + then, "from 1 to 12", true},
		{"match: {api: x}, when: 'time.Month().String() == \"Dec\"'" + then, `did you mean "December"?`, true},
		{"match: {api: x}, when: 'time.Weekday().String() in [\"sat\", \"Sunday\"]'" + then, `did you mean "Saturday"?`, true},
		{"match: {api: x}, when: attrs.n > 5 and attrs.n < 3" + then, "attrs.n > 3 and attrs.n < 5", true},
		{"match: {api: x}, when: 'let n = attrs.n; n > 5 and n < 3'" + then, "it never holds", true},
		{"match: {api: x}, when: 'outcome == \"a\" and outcome == \"b\"'" + then, "with `in`", true},
		{"match: {api: x}, when: '(attrs.n > 5 and attrs.n < 3) or cost > 1'" + then, "it never holds", false},
		{"match: {api: x}, when: 'attrs.p != \"a\" or attrs.p != \"b\"'" + then, "holds for every event", false},
		{"match: {api: x}, when: cost < 0" + then, "0 or more", true},
		{"match: {api: x}, when: 'uid == nil and uid startsWith \"a\"', key: ip" + then, "it never holds", true},
		{"match: {api: x}, when: 'api startsWith \"a.\" and api startsWith \"b.\"'" + then, "it never holds", true},
		// match, key and count against when
		{"match: {api: x, attrs.plan: pro}, when: 'attrs.plan == \"free\"'" + then, "contradicts what `match`", true},
		{"match: {api: x, outcome: success}, when: 'outcome in [\"failure\", \"denied\"]'" + then, "about outcome", true},
		{"match: {api: [x, y]}, when: 'api == \"z\"'" + then, "about api", true},
		{"match: {api: 'post.*'}, when: 'api startsWith \"get.\"'" + then, "about api", true},
		{"match: {api: x}, when: uid == nil" + then, "about uid", true},
		{"match: {api: x}, key: attrs.a, when: not (\"a\" in attrs)" + then, "about attrs.a", true},
		{"match: {api: x, attrs.size: big}, count: {sum: attrs.size}" + then, "contradict each other about attrs.size", true},
		{"match: {api: x}, count: {sum: attrs.size}, when: 'attrs.size == \"9\"'" + then, "about attrs.size", true},
		// tiers
		{"match: {api: x, attrs.plan: pro}, tiers: [{when: 'attrs.plan == \"free\"', limit: 3}]" + then, "contradicts `match`", false},
		{"match: {api: x}, tiers: [{when: 'attrs.n > 5', limit: 3}, {when: 'attrs.n > 7', limit: 4}]" + then, "never used", false},
		{"match: {api: x}, tiers: [{when: 'attrs.p in [\"a\", \"b\"]', limit: 3}, {when: 'attrs.p == \"b\"', limit: 4}]" + then, "never used", false},
		{"match: {api: x}, tiers: [{when: 'attrs.p matches \"^a\"', limit: 3}, {when: 'attrs.p matches \"^a\"', limit: 4}]" + then, "never used", false},
		// limits
		{"match: {api: [x, y]}, count: {distinct: api}, limit: 5, per: 1h, then: {block: 1h}", "never exceeded: api has 2", false},
		{"match: {api: x, attrs.p: [a, b, c]}, count: {distinct: attrs.p}, limit: 3, per: 1h, then: {block: 1h, apis: [b]}", "never exceeded: attrs.p has 3", false},
		{"match: {api: x}, limits: [{name: a, limit: 10, per: 1s}, {name: b, limit: 5, per: 1m}], then: {block: 1h}", "never decides: r/b", false},
		{"match: {api: x}, window: calendar, limits: [{name: a, limit: 10, per: hour}, {name: b, limit: 10, per: day}], then: {block: 1h}", "never decides: r/b", false},
		{"match: {api: x}, count: {distinct: ip}, limit: 5, per: 1h, then: {block: until-reset}", "at: exceeded", false},
		// time
		{"match: {api: x}, limit: 5, per: 30d, window: tumbling, then: {block: 1h}", "per: month", false},
		{"match: {api: x}, limit: 5, per: 365d, window: tumbling, then: {block: 1h}", "per: year", false},
		{"match: {api: x}, when: time.Hour() < 6, limit: 5, per: day, window: calendar, timezone: Asia/Shanghai, then: {block: 1h, apis: [b]}", `timezone("Asia/Shanghai")).Hour()`, false},
		{"match: {api: x}, tiers: [{when: 'int(time.Weekday()) == 0', limit: 9}], limit: 5, per: day, window: calendar, timezone: Asia/Shanghai, then: {block: 1h}", "is in UTC", false},
		{"match: {api: x}, limit: 5, per: 1h, then: {escalate: [1d, 1h], forget: 7d}", "falls from 1d to 1h", false},
		// words
		{"match: {api: x}, limit: 0, per: 1h, window: bucket, then: {block: 1h}", "window: tumbling with limit: 0 allows nothing", true},
		{"match: {api: x}, limit: 0, per: 1h, warn: 50%, then: {block: 1h}", "leave it out: nothing is a share of 0", true},
		{"match: {api: x}, limit: 3, per: month, window: calendar, offset: 16d, then: {block: 1h}", "which day of a month is the first says `anchor`", true},
		{"match: {api: x}, limit: 3, per: month, window: calendar, anchor: 16, then: {block: 1h}", "as in anchor: 2026-01-31", true},
		{"match: {api: x}, count: {share: {outcome: bounced}}" + then, "shares are not counted", true},
	} {
		got, refused := findings(t, test.rule)
		if text := strings.Join(got, "\n"); !strings.Contains(text, test.want) || refused != test.refused {
			t.Errorf("%s:\nrefused %t, want %t and %q:\n%s", test.rule, refused, test.refused, test.want, text)
		}
	}
}

// What is written on purpose is not told.
func TestWhatIsMeantIsNotTold(t *testing.T) {
	const then = ", limit: 10, per: 1h, then: {block: 1h, apis: [b]}"
	for _, rule := range []string{
		"match: {api: x, attrs.accept: '*/*'}" + then,
		"match: {api: x, attrs.version: '1.10', attrs.size: 5, attrs.on: true, outcome: 404}" + then,
		"match: {api: x}, when: time.Hour() >= 22 or time.Hour() < 6" + then,
		"match: {api: x}, when: 'attrs.n > 3 and attrs.n < 3.5 and attrs.n != 3.2'" + then,
		"match: {api: x, outcome: [a, b]}, when: 'outcome != \"a\"'" + then,
		"match: {api: 'get.*'}, when: 'api != \"get.health\" and not (api startsWith \"get.internal.\")'" + then,
		"match: {api: x, attrs.n: [1, 2]}, when: attrs.n > 1" + then,
		"match: {api: x, attrs.on: true}, when: attrs.on" + then,
		"match: {api: x}, key: ip, when: uid == nil" + then,
		"match: {api: x}, tiers: [{when: 'attrs.n > 7', limit: 3}, {when: 'attrs.n > 5', limit: 4}]" + then,
		"match: {api: x}, tiers: [{when: 'attrs.n > 7', limit: 3}, {when: 'not (attrs.n > 7)', limit: 4}, {when: 'attrs.n == nil', limit: 5}]" + then,
		"match: {api: [x, y]}, count: {distinct: api}, limit: 1, per: 1h, then: {block: 1h}",
		"match: {api: x}, count: {distinct: ip}, limit: 5, per: 1h, then: {block: until-reset, at: reached}",
		"match: {api: x}, limits: [{name: a, limit: 5, per: 1s}, {name: b, limit: 100, per: 1m}], then: {block: 1h}",
		"match: {api: x}, limits: [{name: a, limit: 50, per: 1h}, {name: b, limit: 40, per: 1h, window: tumbling}], then: {block: 1h}",
		"match: {api: x}, limit: 5, per: 30d, then: {block: 1h}",
		"match: {api: x}, when: time.UTC().Hour() < 6, limit: 5, per: day, window: calendar, timezone: Asia/Shanghai, then: {block: 1h, apis: [b]}",
		"match: {api: x}, limit: 5, per: 1h, then: {escalate: [1m, 1m, 1h], forget: 7d}",
	} {
		if got, _ := findings(t, rule); len(got) > 0 {
			t.Errorf("%s:\n%s", rule, strings.Join(got, "\n"))
		}
	}
}

// A name or a value that the file declares is one.
func TestWhatIsDeclaredIsNotTold(t *testing.T) {
	src := header + `  attrs: {"a*b": number, plan: ["!pro", "*", free], version: number}
  rules:
    - {name: r, match: {api: x, attrs.plan: ["!pro", "*"], attrs.version: 1.10}, count: {sum: "attrs.a*b"}, limit: 1, per: 1h, then: {block: 1h, apis: [b]}}
`
	set, err := Compile("x.yaml", []byte(src))
	if err != nil || len(set.Warnings) > 0 {
		t.Errorf("%v, %v", err, set)
	}
}

// What a version before accepted goes on in a group that runs it.
func TestWhatIsRefusedNowStillRuns(t *testing.T) {
	for _, rule := range []string{"match: {api: ['*', '!get.health']}", "match: {api: x, attrs.p: '!a'}", "match: {api: x}, count: {sum: attrs.a * b}",
		"match: {api: x}, when: time.Hour() > 22 and time.Hour() < 6", "match: {api: x}, when: uid == nil", `match: {api: x}, when: 'attrs.a matches "x{0,1000}x{0,1000}x{0,1000}x{0,1000}x{0,1000}x{0,1000}x{0,1000}"'`} {
		src := []byte(header + "  rules:\n    - {name: r, " + rule + ", limit: 1, per: 1h, then: {block: 1h, apis: [b]}}\n")
		if _, err := Compile("x.yaml", src); err == nil {
			t.Errorf("%s is accepted in a file", rule)
		}
		set, err := CompilePublished("x.yaml", src, nil)
		if err != nil || len(set.Outdated) == 0 {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

// The project's own rules have no finding: those of the gallery, of the examples, and of the pages.
func TestOurOwnRulesHaveNoFindings(t *testing.T) {
	check := func(name string, src []byte) {
		dir := filepath.Dir(name)
		set, err := CompileWith(name, src, func(file string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, file)) })
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		for _, w := range set.Warnings {
			if !strings.Contains(w.Message, "counts only some events") {
				t.Errorf("%s", w.String())
			}
		}
	}
	files := 0
	for _, pattern := range []string{"../testdata/rules/*.yaml", "../examples/*/rules.yaml", "../internal/programs/dev/*.yaml", "../*.yaml", "../deploy/*.yaml"} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(src), "kind: RuleSet") && !strings.Contains(string(src), "kind: ConfigMap") {
				check(path, src)
				files++
			}
		}
	}
	if files < 30 {
		t.Errorf("only %d files", files)
	}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	for _, page := range []string{"../README.md", "../docs/rules.md", "../docs/gallery.md", "../docs/tutorial.md", "../docs/from-other-limiters.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range block.FindAllStringSubmatch(string(text), -1) {
			switch {
			case strings.HasPrefix(m[1], "apiVersion: tallygate.dev/v1") && !strings.Contains(m[1], ".txt") && !strings.Contains(m[1], ".csv"):
				check(page, []byte(m[1]))
			case strings.HasPrefix(m[1], "- name:") && !strings.Contains(m[1], ".csv"):
				check(page, []byte(header+"  rules:\n    "+strings.ReplaceAll(m[1], "\n", "\n    ")+"\n"))
			}
		}
	}
}

// What a file grants for a time is told once the time is over.
func TestExpiredExemptionsAreTold(t *testing.T) {
	set, err := Compile("x.yaml", []byte(header+"  exempt: [{uid: 1, reason: a, expires: 2026-01-01T00:00:00Z}]\n  rules:\n"+
		"    - {name: r, match: {api: x}, limit: 1, per: 1h, then: {block: 1h}, exempt: [{uid: 2, reason: b, expires: 2026-03-01T00:00:00Z}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	at := func(text string) event.Micros {
		m, err := event.ParseMicros(text)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for moment, want := range map[string]int{"2025-12-31T00:00:00Z": 0, "2026-01-01T00:00:00Z": 1, "2026-04-01T00:00:00Z": 2} {
		if got := set.WarningsAt(at(moment)); len(got) != want || want > 0 && (got[0].Line == 0 || !strings.Contains(got[0].Message, "over since")) {
			t.Errorf("at %s: %v", moment, got)
		}
	}
}
