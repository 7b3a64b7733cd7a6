package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// checkOneMistake compiles a file in which ¦ stands where its one mistake is to be reported, with a
// message that has the given words in it.
func checkOneMistake(t *testing.T, marked, message string) {
	t.Helper()
	before, after, found := strings.Cut(marked, "¦")
	if !found {
		t.Fatalf("no ¦ in %q", marked)
	}
	src := before + after
	line, column := 1+strings.Count(before, "\n"), 1+utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	_, err := Compile("x.yaml", []byte(src))
	list, _ := errors.AsType[Errors](err)
	if len(list) != 1 || list[0].Line != line || list[0].Column != column || !strings.Contains(list[0].Message, message) {
		t.Errorf("want one mistake, at %d:%d, %s:\n%v", line, column, message, err)
	}
}

// A malformed value has one message, at the value: none follows from the first mistake.
func TestAMalformedValueIsOneMistake(t *testing.T) {
	const then, per = "then: {block: 5m}", "match: {api: x}, limit: 5, per: 1m, "
	for _, rule := range []string{
		"name: ¦, " + per + then,
		"name: a, public: ¦, " + per + then,
		"name: a, key: ¦, " + per + then,
		"name: a, key: [uid, ¦], " + per + then,
		"name: a, match: {api: ¦}, limit: 5, per: 1m, " + then,
		"name: a, match: {api: [x, ¦]}, limit: 5, per: 1m, " + then,
		"name: a, match: {api: {x: ¦}}, limit: 5, per: 1m, " + then,
		"name: a, match: {api: x, outcome: ¦}, limit: 5, per: 1m, " + then,
		"name: a, match: {api: x, attrs.plan: ¦}, limit: 5, per: 1m, " + then,
		"name: a, match: {api: x, attrs: {plan: ¦}}, limit: 5, per: 1m, " + then,
		"name: a, when: ¦, " + per + then,
		"name: a, count: {sum: ¦}, " + per + then,
		"name: a, count: {distinct: ¦}, " + per + then,
		"name: a, refunds: ¦, " + per + then,
		"name: a, match: {api: x}, limit: ¦, per: 1m, " + then,
		"name: a, match: {api: x}, limit: 5, per: ¦, " + then,
		"name: a, match: {api: x}, limit: 5, per: ¦, window: tumbling, " + then,
		"name: a, match: {api: x}, limit: 5, per: ¦, window: bucket, burst: 9, debt: 2, " + then,
		"name: a, match: {api: x}, limit: 5, per: ¦, window: calendar, " + then,
		"name: a, window: ¦, " + per + then,
		"name: a, window: tumbling, offset: ¦, " + per + then,
		"name: a, window: bucket, burst: ¦, " + per + then,
		"name: a, window: bucket, debt: ¦, " + per + then,
		"name: a, window: session, gap: ¦, match: {api: x}, limit: 5, " + then,
		"name: a, window: calendar, timezone: ¦, match: {api: x}, limit: 5, per: day, " + then,
		"name: a, window: calendar, week_starts: ¦, match: {api: x}, limit: 5, per: week, " + then,
		"name: a, resolution: ¦, match: {api: x}, limit: 100k, per: 1m, " + then,
		"name: a, tiers: [{when: ¦, limit: 9}], " + per + then,
		"name: a, tiers: [{when: cost > 1, limit: ¦}], " + per + then,
		"name: a, candidate: {limit: ¦}, " + per + then,
		"name: a, warn: ¦, " + per + then,
		"name: a, warn: [50%, ¦], " + per + then,
		"name: a, mode: ¦, " + per + then,
		"name: a, fuse: ¦, " + per + then,
		"name: a, " + per + "then: {block: ¦}",
		"name: a, " + per + "then: {escalate: [1m, ¦], forget: 1d}",
		"name: a, " + per + "then: {escalate: [1m, 5m], forget: ¦}",
		"name: a, " + per + "then: {block: 5m, extend: ¦}",
		"name: a, " + per + "then: {block: 5m, reset: ¦}",
		"name: a, " + per + "then: {block: 5m, at: ¦}",
		"name: a, " + per + "then: {block: 5m, action: ¦}",
		"name: a, " + per + "then: {block: 5m, apis: ¦}",
		"name: a, match: {api: x}, limits: [{name: ¦, limit: 5, per: 1m}], " + then,
		"name: a, match: {api: x}, limits: [{name: b, limit: ¦, per: 1m}], " + then,
		"name: a, match: {api: x}, limits: [{name: b, limit: 5, per: ¦}], " + then,
	} {
		for _, value := range []string{"!other 5", ".inf", "{}"} {
			checkOneMistake(t, header+"  rules:\n    - {"+strings.Replace(rule, "¦", "¦"+value, 1)+"}\n", "")
		}
	}
}

// A mistake of another kind has one message, too, at the character that is wrong.
func TestEachMistakeIsToldOnceWhereItIs(t *testing.T) {
	const then = "then: {block: 5m}"
	for _, rule := range []string{
		"name: a, match: {api: x}, limit: 5, per: ¦0s, window: tumbling, " + then,
		"name: a, match: {api: x}, limit: 5, per: ¦day, window: tumbling, " + then,
		"name: a, match: {api: x}, limit: 5, per: ¦0s, window: bucket, burst: 9, debt: 2, " + then,
		"name: a, match: {api: x}, limit: 5, per: 1m, window: tumbling, offset: ¦2m, " + then,
		"name: a, match: {api: x}, limit: 5, per: 1m, window: bucket, debt: ¦0, " + then,
		"name: a, match: {api: x}, limit: 100k, per: 1m, resolution: ¦2m, " + then,
		"name: a, match: {api: x}, limit: 5, ¦per: , " + then,
		"name: a, match: {api: x}, limit: 5, window: tumbling, ¦per: , " + then,
		"¦nam: a, match: {api: x}, limit: 5, per: 1m, " + then,
		"name: a, match: {¦aip: x}, limit: 5, per: 1m, " + then,
		"name: a, match: {api: x, outcome: ok, ¦outcome: no}, limit: 5, per: 1m, " + then,
		"name: a, match: {api: x}, ¦<<: {limit: 5, per: 1m}, " + then,
		"name: a, match: {api: x}, limit: 5, per¦:1m, " + then,
		"name: a, key: [uid, ¦uid], match: {api: x}, limit: 5, per: 1m, " + then,
		"name: a, match: {api: [x, ¦x]}, limit: 5, per: 1m, " + then,
		"name: a, match: {api: {x: ¦0}}, limit: 5, per: 1m, " + then,
		"name: a, when: '\"上\" == ¦outcom', match: {api: x}, limit: 5, per: 1m, " + then,
		"name: a, warn: [50%, ¦50%], match: {api: x}, limit: 5, per: 1m, " + then,
		"name: a, match: {api: x}, limit: 5, per: 1m, then: {block: ¦5min}",
		"name: a, match: {api: x}, limit: 5, per: 1m, then: {block: 5m, escalate: ¦[1m], forget: 1d}",
		"name: a, match: {api: x}, limit: 5, per: 1m, then: ¦{escalate: [1m]}",
		"name: a, match: {api: x}, limit: 5, per: 1m, then: {block: 5m, forget: ¦1d}",
	} {
		checkOneMistake(t, header+"  rules:\n    - {"+rule+"}\n", "")
	}
}

// An invisible character is reported where it is: also behind the same one in a reason, in the first
// column, and on a later line.
func TestInvisibleCharactersAreReportedWhereTheyAre(t *testing.T) {
	const rule = "match: {api: x}, limit: 5, per: 1m, then: {block: 5m}"
	for _, marked := range []string{
		"¦\u200b" + header + "  rules:\n" + ruleYAML("a", "match: {api: x}"),
		header + "  rules:\n    - {name: a, exempt: [{reason: a\u200bb, uid: 4¦\u200b2}], " + rule + "}\n",
		header + "  rules:\n    - {name: a, key: [ip, u¦\u200bid], " + rule + "}\n",
		header + "  rules:\n    - name: a\n      when: |-\n        cost > 1 &&\n        cost <¦\u200b 2\n      match: {api: x}\n      limit: 5\n      per: 1m\n      then: {block: 5m}\n",
	} {
		checkOneMistake(t, marked, "an invisible character")
	}
}

// A file that is too large with its aliases is one mistake: no message follows that a later rule
// lacks fields.
func TestTooManyAliasesAreOneMistake(t *testing.T) {
	var b strings.Builder
	b.WriteString(header + "  rules:\n    - {name: r, match: {api: &m {")
	for i := range 3000 {
		fmt.Fprintf(&b, "a%d: 1, ", i)
	}
	b.WriteString("}}, limit: 5, per: 1m, then: {block: 5m}}\n")
	for i := range 300 {
		fmt.Fprintf(&b, "    - {name: r%d, match: {api: *m}, limit: 5, per: 1m, then: {block: 5m}}\n", i)
	}
	_, err := Compile("x.yaml", []byte(b.String()))
	list, _ := errors.AsType[Errors](err)
	if len(list) != 1 || !strings.Contains(list[0].Message, "aliases") {
		t.Errorf("%d mistakes: %.1000v", len(list), err)
	}
}
