package rules

import (
	"errors"
	"strings"
	"testing"
)

// Each of these passed `check`, and then never held, or failed at each event: nothing was ever counted.
func TestWhenRefusesWhatNeverHolds(t *testing.T) {
	for _, test := range []struct{ when, message, hint string }{
		{`uid == 42`, "uid is text or nil, and 42 a number: they are never equal", `"42"`},
		{`42 == uid`, "never equal", `"42"`},
		{`uid != 42`, "never equal", `"42"`},
		{`uid in [42]`, "uid is text or nil, and 42 a number: they are never equal", `"42"`},
		{`uid in ["u1", 42]`, "never equal", `"42"`},
		{`uid in ["u1", 42, attrs.x]`, "never equal", `"42"`},
		{`not (uid in [42])`, "never equal", `"42"`},
		{`uid not in [42]`, "never equal", `"42"`},
		{`ip == 10`, "never equal", `"10"`},
		{`uid == true`, "never equal", `"true"`},
		{`uid == cost`, "never equal", `string(cost)`},
		{`api in [42]`, "never equal", `"42"`},
		{`outcome in ["success", true]`, "never equal", `"true"`},
		{`cost in ["5"]`, "never equal", "without quotes"},
		{`cost in [1, "5"]`, "never equal", "without quotes"},
		{`time.Hour() in ["3"]`, "never equal", "without quotes"},
		{`let u = uid; u == 42`, "never equal", `"42"`},
		{`(uid ?? "none") == 42`, "never equal", ""},
		{`(uid ?? "") in [1, 2]`, "never equal", `"1"`},
		{`uid == ["u1"]`, "never equal", "`in`"},
		{`attrs.x == time`, "never equal", "date("},
		{`time > attrs.born`, "neither is less", "date("},
		{`uid > 5`, "neither is less than the other", `"5"`},
		{`uid + 1 == 2`, "they have no sum", "int("},
		{`uid - 1 == 2`, "- is for numbers, and uid is", "int(uid)"},

		{`api == nil`, "api is text, and never nil", ""},
		{`outcome == nil`, "never nil", `outcome == ""`},
		{`cost == nil`, "never nil", "has 1"},
		{`attrs == nil`, "never nil", "len(attrs) == 0"},

		{`time.Weekday() in [0, 6]`, "time.Weekday() is a day or a month, and no number", "int(time.Weekday()) in [0, 6]"},
		{`time.Weekday() in [0,6]`, "no number", "Sunday is 0"},
		{`time.Weekday() == 6`, "mismatched types", "int(time.Weekday())"},
		{`time.Month() in [11, 12]`, "no number", "January is 1"},
		{`time.In(timezone("Asia/Tokyo")).Weekday() in [0, 6]`, "no number", "Sunday is 0"},

		{`attrs.user.plan == "pro"`, "attributes are flat: there is nothing in attrs.user", `attrs["user.plan"]`},
		{`attrs.user?.plan == "pro"`, "attributes are flat", "user_plan"},
		{`attrs["user"]["plan"] == "pro"`, "attributes are flat", `attrs["user.plan"]`},
		{`attrs.a.b.c == 1`, "attributes are flat: there is nothing in attrs.a", `attrs["a.b"]`},
		{`attrs.tags[0] == "p"`, "attributes are flat", ""},
		{`attrs.name.Lower() == "p"`, "attributes are flat", ""},
		{`uid.name == "x"`, "there is nothing in uid", ""},
		{`any(attrs.tags, # == "x")`, "any() takes a list", "split("},
		{`"x" in attrs.tags`, "behind `in` stands a list", "split("},

		{`ip in "10.0.0.0/8"`, `never equal to "10.0.0.0/8"`, `inNetwork(ip, "10.0.0.0/8")`},
		{`ip in ["10.1.0.0/16"]`, "never equal", `inNetwork(ip, "10.1.0.0/16")`},
		{`ip == "10.1.2.0/24"`, "never equal", `inNetwork(ip, "10.1.2.0/24")`},
		{`ip == "10.0.0.0/12"`, "never equal", `inNetwork(ip, "10.0.0.0/12")`},
		{`ip == "2001:db8::/32"`, "never equal", `inNetwork(ip, "2001:db8::/32")`},
		{`ip == "10.*"`, "never equal", ""},
		{`ip == "2001:DB8::1"`, "another form", `"2001:db8::1"`},
		{`ip in ["::ffff:192.0.2.1"]`, "another form", `"192.0.2.1"`},
		{`attrs.plan in "professional"`, "behind `in` stands a list", "contains"},
		{`uid in "u1,u2"`, "behind `in` stands a list", `["u1,u2"]`},

		{`api == "search.*"`, "no API's name", "match"},
		{`api == "GET /search"`, "no blanks", "get.search"},
		{`api in ["a|b"]`, "regular expression", "[a, b]"},

		{`uid`, "not true or false", "uid != nil"},
		{`not uid`, "not true or false", "uid != nil"},
		{`uid && cost > 1`, "not true or false", "uid != nil"},
		{`cost > 1 ? uid : ip`, "not true or false", ""},
		{`uid ? true : cost > 1`, "not true or false", ""},
		{`attrs.n matches cost`, "mismatched types", ""},
	} {
		_, err := compileWhenRule(test.when)
		list, ok := errors.AsType[Errors](err)
		if !ok || len(list) == 0 || !strings.Contains(list[0].Message, test.message) || !strings.Contains(list[0].Hint, test.hint) {
			t.Errorf("%s: %v\nwant %s\nhint %s", test.when, err, test.message, test.hint)
		}
	}
}

// What can hold stays possible, also what looks odd.
func TestWhenTakesWhatCanHold(t *testing.T) {
	for _, when := range []string{
		`attrs.x == 42 or attrs.x == "42" or attrs.x == true or attrs.x == nil`, `attrs.x in [42, "42", true]`, `uid in ["42", nil]`,
		`attrs[api] == 1`, `attrs["user.plan"] == "pro"`, `(attrs.n ?? 0) > 41`, `(attrs.s ?? "") matches "^a"`, `int(uid) == 42`, `uid == string(42)`,
		`int(time.Weekday()) in [0, 6]`, `time.Weekday().String() in ["Saturday", "Sunday"]`, `int(time.Month()) == 12`, `attrs.t == time.Unix()`,
		`ip startsWith "10."`, `ip == "192.0.2.1"`, `ip in ["2001:db8::1", "192.0.2.1"]`, `uid == ip`, `uid == attrs.owner`, `api != nil and uid != nil`,
		`any(split(attrs.tags ?? "", ","), # == "x")`, `"plan" in attrs`, `attrs.a + attrs.b == "ab"`, `attrs.a + 1 > 2`, `time.Sub(date("2026-01-02")) > duration("1h")`,
		`let u = uid; u == "42"`, `let u = attrs.n; u == 42`, `(uid == "u" ? attrs.x : true)`, `uid[0:1] == "u"`, `attrs.x == cost`, `len(attrs.plan) > 2`,
		`attrs.ok`, `attrs.ok && not attrs.other`, `attrs?.plan == "pro"`, `api == "order.create"`, `api matches "^(a|b)$"`, `cost == 1.5 or cost in [1, 2.5]`,
		`{"a": 1}["a"] == 1`, `["a", 1][0] == "a"`, `first(split(uid, ":")) == "x"`, `attrs.x == 'it''s'`, `fromJSON(attrs.json).a.b == 1`, `true`,
	} {
		if strings.Contains(when, "''") {
			when = strings.ReplaceAll(when, "''", "")
		}
		set, err := compileWhenRule(when)
		if err != nil {
			t.Errorf("%s: %v", when, err)
		} else if len(set.Warnings) > 1 { // the one of a rule that counts a part
			t.Errorf("%s: %v", when, set.Warnings)
		}
	}
}

// Both work, in the company of a comparison with nil; alone the first never holds and the second always does.
func TestWhenWarnsOfEmptyForAbsent(t *testing.T) {
	for _, when := range []string{`uid == ""`, `attrs.plan != ""`, `ip in ["192.0.2.1", ""]`} {
		set, err := compileWhenRule(when)
		if err != nil || len(set.Warnings) == 0 || !strings.Contains(set.Warnings[0].Message, "never empty") {
			t.Errorf("%s: %v", when, err)
		}
	}
}

// All mistakes of a predicate are told at once, at their characters.
func TestWhenTellsEachMistakeAtItsPlace(t *testing.T) {
	_, err := compileWhenRule(`uid == 42 or ip in ["10.0.0.0/8"] or attrs.a.b`)
	list, _ := errors.AsType[Errors](err)
	var columns []int
	for _, e := range list {
		columns = append(columns, e.Column-8)
	}
	if want := []int{8, 21, 45}; len(columns) != 3 || columns[0] != want[0] || columns[1] != want[1] || columns[2] < 40 {
		t.Errorf("at %v:\n%v", columns, err)
	}
}
