package rules

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
)

const overridden = header + `  rules:
    - {name: a, match: {api: x}, limit: {from: attrs.quota, else: 3, most: 9}, per: 1h, overrides: limits.csv, then: {block: until-reset}}
    - {name: b, key: [attrs.shop, uid], match: {api: x}, count: {sum: cost}, tiers: [{when: 'attrs.plan == "pro"', limit: 8}], limit: 3, per: 1h, then: {block: 5m}, overrides: shops.csv}
`

const someLimits = "\ufeffuid,limit,until,reason\r\n# a comment\r\n\r\n42, 5, 2026-11-21T12:00:01Z, \"Black Friday, again\"\r\n43,unlimited,,\r\n44,1k,,ours\r\n"

func compileOverrides(files map[string]string) (*Set, error) {
	return CompileWith("rules.yaml", []byte(overridden), func(name string) ([]byte, error) {
		text, ok := files[name]
		if !ok {
			return nil, fs.ErrNotExist
		}
		return []byte(text), nil
	})
}

// overrideRig steps events of one limit's keys.
type overrideRig struct {
	t      *testing.T
	set    *Set
	states map[string][]byte
}

func (r *overrideRig) send(at event.Micros, uid string, attrs ...event.Attr) (changes []string) {
	r.t.Helper()
	e := &event.Event{API: "x", UID: uid, Time: at, Cost: event.One, Attrs: attrs}
	stepper := r.set.NewStepper()
	for _, w := range r.set.NewMatcher().Match(e, at) {
		next, res := stepper.Step(nil, r.states[string(w.Key)], Input{Key: w.Key, Hits: w.Hits, At: at})
		r.states[string(w.Key)] = next
		for _, v := range res.Changes {
			changes = append(changes, fmt.Sprint(v.Rule, " ", v.State, " ", v.Count, " of ", v.Limit))
		}
	}
	return changes
}

func (r *overrideRig) explain(key string, at event.Micros) string {
	x := r.set.Explain(r.states[key], []byte(key), at, "")[0]
	return fmt.Sprint(x.Count, " of ", x.Limit, " by ", x.LimitFrom)
}

func quotaAttr(n string) event.Attr {
	return event.Attr{Name: "quota", Value: event.Value{Kind: event.Number, Text: n}}
}

// `overrides` names a CSV file. An override is stronger than tiers and attributes.
func TestSentencesOverridesAreLimitsOfSingleKeys(t *testing.T) {
	set, err := compileOverrides(map[string]string{"limits.csv": someLimits, "shops.csv": "limit,attrs.shop,uid\n1.5,s 1,7\n"})
	if err != nil {
		t.Fatal(err)
	}
	r := &overrideRig{t, set, map[string][]byte{}}
	for range 4 {
		if got := r.send(noon, "42", quotaAttr("2")); got != nil {
			t.Errorf("below its own limit: %v", got)
		}
	}
	if got := r.explain("uid=42", noon); got != "4 of 5 by overrides" {
		t.Error(got)
	}
	if got := fmt.Sprint(r.send(noon, "42", quotaAttr("9"))); got != "[a block 5 of 5]" {
		t.Error(got)
	}
	if got := r.explain("uid=42", noon+event.Second); got != "5 of 9 by attrs.quota" {
		t.Errorf("the override is over: %s", got)
	}
	if x := r.set.Explain(r.states["uid=42"], []byte("uid=42"), noon, "")[0]; x.FreesAt != noon+event.Second || x.Verdict.Until != noon+event.Second {
		t.Errorf("the override ends a second later, and its block with it: %+v, %+v", x, x.Verdict)
	}
	if got := r.send(noon+event.Second, "42", quotaAttr("9")); got != nil {
		t.Errorf("there is nothing left to clear: %v", got)
	}
	for range 20 {
		if got := r.send(noon, "43", quotaAttr("2")); got != nil {
			t.Errorf("unlimited: %v", got)
		}
	}
	if got := r.explain("uid=44", noon); got != "0 of 1000 by overrides" {
		t.Error(got)
	}
	shop := event.Attr{Name: "shop", Value: event.Value{Text: "s 1"}}
	pro := event.Attr{Name: "plan", Value: event.Value{Text: "pro"}}
	r.send(noon, "7", shop, pro)
	if got := fmt.Sprint(r.send(noon, "7", shop, pro)); got != "[b block 2 of 1.5]" {
		t.Error(got)
	}
	if limits := set.Limits[0].Overrides(); len(limits) != 3 || limits[0].Reason != "Black Friday, again" || limits[1].Limit != Unlimited {
		t.Errorf("%+v", limits)
	}
}

// The file is part of the rules. Counters stay, and each key is judged by its new limit.
func TestSentencesOverridesThatChangeAreJudgedAgain(t *testing.T) {
	shops := "uid,attrs.shop,limit\n"
	one, err := compileOverrides(map[string]string{"limits.csv": "uid,limit\n42,5\n", "shops.csv": shops})
	if err != nil {
		t.Fatal(err)
	}
	two, err := compileOverrides(map[string]string{"limits.csv": "uid,limit\n42,2\n", "shops.csv": shops})
	if err != nil {
		t.Fatal(err)
	}
	if one.Hash == two.Hash || one.Limits[0].Hash != two.Limits[0].Hash {
		t.Error("another file is another set, whose counters go on")
	}
	if one.Limits[0].judged == two.Limits[0].judged || one.Limits[1].judged != two.Limits[1].judged {
		t.Error("its limit is judged otherwise, and no other is")
	}
	r := &overrideRig{t, one, map[string][]byte{}}
	for range 3 {
		r.send(noon, "42")
	}
	stepper := two.NewStepper()
	stepper.After(one)
	_, res := stepper.Rejudge(nil, r.states["uid=42"], []byte("uid=42"), noon+event.Second)
	if len(res.Changes) != 1 || res.Changes[0].Limit != 2*event.One || res.Changes[0].Count != 3*event.One {
		t.Errorf("%+v", res.Changes)
	}
}

// Requests are judged by overrides, too. Where a request's time is not known, an override that ends some
// time holds only if it is lower.
func TestOverridesOfRequests(t *testing.T) {
	text := header + "  rules:\n    - {name: a, match: {api: x}, limit: {from: attrs.quota, else: 3, most: 9}, per: 1h, overrides: l, %s}\n"
	for name, kind := range map[string]string{"strict": "strict: true", "instance": "scope: instance"} {
		set, err := CompileWith("r.yaml", fmt.Appendf(nil, text, kind), func(string) ([]byte, error) {
			return []byte("uid,limit,until\n1,7,\n2,7,2026-11-21T12:00:01Z\n3,2,2026-11-21T12:00:01Z\n4,unlimited,\n"), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		of := set.Strict()
		if kind != "strict: true" {
			of = set.Instance
		}
		q := NewRequests(of)
		for _, tt := range []struct {
			uid  string
			at   event.Micros
			want event.Decimal
		}{
			{"1", noon, 7}, {"1", event.NoTime, 7}, {"2", noon, 7}, {"2", noon + event.Second, 4}, {"2", event.NoTime, 4},
			{"3", noon, 2}, {"3", event.NoTime, 2}, {"3", noon + event.Second, 4}, {"4", noon, -1}, {"5", noon, 4},
		} {
			wants := q.Wants(&event.Event{API: "x", UID: tt.uid, Cost: event.One, Attrs: []event.Attr{quotaAttr("4")}}, tt.at)
			if len(wants) != 1 || wants[0].Threshold != max(tt.want*event.One, Unlimited) || wants[0].AnyTier {
				t.Errorf("%s, uid %s at %d: %+v, want %d", name, tt.uid, tt.at, wants, tt.want)
			}
		}
		wants := q.Wants(&event.Event{API: "x", UID: "5", Cost: event.One}, noon)
		switch {
		case of[0].Strict == nil && (len(wants) != 1 || wants[0].Threshold != 3*event.One):
			t.Errorf("%s, without the attribute: %+v", name, wants)
		case of[0].Strict != nil && (len(wants) != 0 || len(q.Skipped) != 1 || q.Skipped[0].Reason != SkipLimit):
			t.Errorf("%s, without the attribute: %+v %+v", name, wants, q.Skipped)
		}
	}
}

// `check` names each bad row of a file.
func TestSentencesCheckNamesBadRowsOfOverrides(t *testing.T) {
	many := strings.Builder{}
	many.WriteString("uid,limit\n")
	for i := range maxOverrides + 1 {
		fmt.Fprintf(&many, "%d,5\n", i)
	}
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"empty":      {"", []string{"1:1: a file of overrides begins with the names of its columns"}},
		"no limit":   {"uid\n", []string{"1:1: the column limit is missing"}},
		"a misprint": {"uid,limt\n", []string{"1:1: the column limit is missing", `1:5: there is no column "limt"; did you mean "limit"?`}},
		"twice":      {"uid,limit,uid\n", []string{"1:11: the column uid is there twice"}},
		"rows": {"uid,limit,until\n,5,\nä,x,soon\n7,5\n8,-1,\n9,5,\n9,6,\n10,1.5,\n", []string{
			"2:1: uid: it is empty", `3:3: limit: "x" is not a number`, `3:5: until: "soon" is not an RFC 3339 time`, "4:1: the row has 2 values, and there are 3 columns",
			"5:3: limit: -1 is negative", "7:1: uid=9 is on line 6 already", "8:4: limit: events are counted in whole numbers, not 1.5",
		}},
		"a quote":  {"uid,limit\n7,\"5\n", []string{"2:5: not valid CSV"}},
		"binary":   {"uid,limit\n\x00,5\n", []string{"2:1: a control character"}},
		"too many": {many.String(), []string{"10002:1: there are more than 10000 overrides"}},
	} {
		_, err := compileOverrides(map[string]string{"limits.csv": tt.text, "shops.csv": "uid,attrs.shop,limit\n"})
		mistakes, _ := errors.AsType[Errors](err)
		var got []string
		for _, m := range mistakes {
			got = append(got, fmt.Sprintf("%d:%d: %s", m.Line, m.Column, m.Message))
			if m.File != "limits.csv" || m.Rule != "a" {
				t.Errorf("%s: %+v", name, m)
			}
		}
		if len(got) != len(tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
			continue
		}
		for i := range got {
			if !strings.HasPrefix(got[i], tt.want[i]) {
				t.Errorf("%s: %s, want %s", name, got[i], tt.want[i])
			}
		}
	}
}

// A mistake in the key is no mistake in the file.
func TestOverridesOfAMistakenKey(t *testing.T) {
	_, err := CompileWith("r.yaml", []byte(header+"  rules:\n    - {name: a, key: [user], match: {api: x}, limit: 5, per: 1h, overrides: l, then: {block: 1m}}\n"),
		func(string) ([]byte, error) { return []byte("uid,limit\n1,5\n"), nil })
	if mistakes, _ := errors.AsType[Errors](err); len(mistakes) != 1 || mistakes[0].File != "r.yaml" {
		t.Error(err)
	}
}

// Distinct values have overrides above 1,024 only if the rule's own limit is, too.
func TestSentencesOverridesOfDistinctValues(t *testing.T) {
	compile := func(limit, own string) error {
		_, err := CompileWith("r.yaml", fmt.Appendf(nil, header+"  rules:\n    - {name: a, match: {api: x}, count: {distinct: ip}, window: tumbling, limit: %s, per: 1h, overrides: l, then: {block: 1m}}\n", limit),
			func(string) ([]byte, error) { return []byte("uid,limit\n1," + own + "\n"), nil })
		return err
	}
	if err := compile("5", "1025"); err == nil || !strings.Contains(err.Error(), "above 1024 distinct values") {
		t.Error(err)
	}
	if err := errors.Join(compile("5", "1024"), compile("1025", "2k")); err != nil {
		t.Error(err)
	}
}

// One override above 64 gives the windows of all keys panes: check says so.
func TestAnOverrideThatMakesPanesIsWarnedOf(t *testing.T) {
	for _, tt := range []struct {
		rule, own string
		warns     bool
	}{
		{"limit: 5", "65", true},
		{"limit: 5, count: {distinct: ip}", "65", true},
		{"limit: 5", "64", false},
		{"limit: 5", "unlimited", false},
		{"limit: 65", "100", false}, // panes anyhow
		{"limit: {from: attrs.quota, else: 5, most: 70}", "100", false},
		{"limit: 5, count: {sum: cost}", "100", false},
		{"limit: 5, window: tumbling", "100", false},
	} {
		set, err := CompileWith("r.yaml", []byte(header+"  rules:\n    - {name: a, match: {api: x}, "+tt.rule+", per: 1h, overrides: l, then: {block: 1m}}\n"),
			func(string) ([]byte, error) { return []byte("uid,limit\n1," + tt.own + "\n"), nil })
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(fmt.Sprint(set.Warnings), "an override of "+tt.own+" is above 64"); got != tt.warns {
			t.Errorf("%s, an override of %s: %v", tt.rule, tt.own, set.Warnings)
		}
	}
}

func FuzzOverrides(f *testing.F) {
	f.Add(someLimits)
	f.Add("uid,limit\n\"a\"\"b\",5\n")
	f.Fuzz(func(t *testing.T, text string) {
		set, err := compileOverrides(map[string]string{"limits.csv": text, "shops.csv": "uid,attrs.shop,limit\n"})
		if err != nil {
			mistakes, ok := errors.AsType[Errors](err)
			if !ok || len(mistakes) == 0 || mistakes[0].Line < 1 || mistakes[0].Column < 1 {
				t.Fatalf("%v", err)
			}
			return
		}
		for _, o := range set.Limits[0].Overrides() {
			e := &event.Event{API: "x", UID: o.Key[0].Value, Cost: event.One}
			works := set.NewMatcher().Match(e, noon)
			if got, has := set.Limits[0].Override(works[0].Key, event.MinTime); !has || got != o.Limit {
				t.Fatalf("%+v: %v, %v", o, got, has)
			}
		}
	})
}
