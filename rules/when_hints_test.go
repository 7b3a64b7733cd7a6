package rules

import (
	"errors"
	"strings"
	"testing"
)

// People write predicates as other languages do. They are told how it is written here.
func TestWhenKnowsOtherLanguages(t *testing.T) {
	for when, want := range map[string]string{
		`uid != nil AND cost > 1`:  "it is written and",
		`cost > 1 OR cost < 0`:     "it is written or",
		`NOT attrs.ok`:             "it is written not",
		`cost > 1 And cost < 3`:    "it is written and",
		`attrs.plan == null`:       "did you mean nil?",
		`attrs.plan == NULL`:       "did you mean nil?",
		`attrs.plan == None`:       "did you mean nil?",
		`attrs.ok == True`:         "did you mean true?",
		`attrs.plan == pro`:        `text stands in quotes: "pro"; an attribute is attrs.pro`,
		`attrs.plan in [pro, "x"]`: `text stands in quotes: "pro"`,
		`plan == "pro"`:            "an attribute is attrs.plan",
		`outcom == "success"`:      `did you mean "outcome"?`,
		`user_id == "x"`:           "did you mean uid?",
		`attrs.plan is nil`:        "instead of is write ==",
		`uid IN ["x"]`:             "it is written in",
		`api LIKE "x%"`:            "instead of LIKE write contains",
		`uid === "x"`:              "instead of === write ==",
		`uid <> "x"`:               "instead of <> write !=",
		`uid = "x"`:                "equality is ==",
		`cost > 1 & cost < 3`:      "instead of & write and",
		`api startswith "x"`:       "it is written startsWith",
		`api =~ "x"`:               "instead of =~ write matches",
		`if cost > 1 then true`:    "",
		`time.Weekday() == 0`:      "Sunday is 0",
		`time.Month() > 6`:         "January is 1",
		`time > "2026-11-21"`:      "date(",
		`time.Sub(time) > 5`:       "duration(",
	} {
		_, err := compileWhenRule(when)
		list, _ := errors.AsType[Errors](err)
		if len(list) == 0 || !strings.Contains(list[0].Message+" "+list[0].Hint, want) {
			t.Errorf("%s: %v\nwant %s", when, err, want)
		}
	}
}
