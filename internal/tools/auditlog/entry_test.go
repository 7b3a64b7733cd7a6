package auditlog

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/keytext"
)

// Each type of entry is told in words.
func TestEntriesInWords(t *testing.T) {
	for raw, want := range map[string]string{
		`{"type":"rules","at":"2026-11-21T10:00:00Z","by":"ann","version":9,"name":"rules.yaml","file":"/etc/rules.yaml","hash":"ab"}`:            "ann|rules version 9 of /etc/rules.yaml||-",
		`{"type":"rules","by":"ann","on_behalf_of":"bob","version":9,"from":5,"reason":"the new limit was too low"}`:                              "ann for bob|rules version 9, rolled back to version 5||the new limit was too low",
		`{"type":"kill-switch","by":"agg-1","enforcer":"shop","enforcer_id":"x","enabled":false,"cause":"file","since":"2026-11-21T10:00:00Z"}`:   "agg-1|kill switch on: shop||by file since 2026-11-21T10:00:00Z",
		`{"type":"kill-switch","by":"agg-1","enforcer":"shop","enabled":true}`:                                                                    "agg-1|kill switch off: shop||-",
		`{"type":"read","by":"ann","key":"uid=42","what":"explain","reason":"ticket 7","id":"r1"}`:                                                "ann|read of personal data: explain|uid=42|ticket 7",
		`{"type":"command","by":"ann","command":"forget","key":"uid=42","reason":"asked","id":"c1"}`:                                              "ann|erase|uid=42|asked",
		`{"type":"command","by":"ann","command":"exempt","key":{"uid":"42"},"reason":"over","id":"c1"}`:                                           "ann|exempt ended|uid=42|over",
		`{"type":"command","by":"ann","command":"unblock","each":["uid=1"],"keys":"many","reason":"over","id":"c1"}`:                              "ann|unblock|uid=1|over",
		`{"type":"command","by":"ann","command":"limit","key":"uid=42","rule":"r","amount":"unlimited","given":"i","reason":"7","id":"c1"}`:       "ann|limit unlimited|uid=42|7",
		`{"type":"command","by":"ann","command":"grant","key":"uid=42","rule":"r","amount":"500","until":"2026-11-21T10:00:00Z","reason":"7"}`:    "ann|grant +500 until 2026-11-21T10:00:00Z|uid=42|7",
		`{"type":"command","by":"ann","command":"grant","key":"uid=42","rule":"r","given":"i","ends":true,"reason":"7"}`:                          "ann|grant ended|uid=42|7",
		`{"type":"fuse","by":"agg-1","rule":"r","reason":"too many"}`:                                                                             "agg-1|fuse blown||too many",
		`{"type":"dead-letters","by":"ann","letters":2,"events":3,"now":true,"records":[{"topic":"t","partition":1,"offset":7,"last_offset":9}]}`: "ann|send 2 dead letters again||3 events without their times, t/1@7 to 9",
		`{"type":"of tomorrow","by":"ann"}`: `ann|of tomorrow||{"type":"of tomorrow","by":"ann"}`,
	} {
		e, err := Parse([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		d, _ := e.Describe([]byte(raw))
		why := d.Why
		if why == "" {
			why = "-"
		}
		if got := e.Who() + "|" + d.What + "|" + keytext.Format(d.Key) + "|" + why; got != want {
			t.Errorf("%s\nis  %s\nnot %s", raw, got, want)
		}
	}
	for _, bad := range []string{"", "[]", `{"type":"verdict"}`, `{"type":"verdict","verdict":{"rule":1}}`} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%q is taken for an entry", bad)
		}
	}
}

func TestFilters(t *testing.T) {
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	uid := []event.Dim{{Name: "uid", Value: "42"}}
	both := []event.Dim{{Name: "api", Value: "login"}, {Name: "uid", Value: "42"}}
	e := Entry{Type: Command, At: event.FromTime(at), By: "Ann", For: "bob", Rule: "r/burst", Key: both}
	for i, c := range []struct {
		f    Filter
		want bool
	}{
		{Filter{}, true},
		{Filter{Types: []string{Command, Read}, Key: uid, Rule: "r", By: "ann", From: at, To: at.Add(1)}, true},
		{Filter{By: "BOB"}, true},
		{Filter{By: "carl"}, false},
		{Filter{Types: []string{Read}}, false},
		{Filter{Rule: "r/bur"}, false},
		{Filter{From: at.Add(1)}, false},
		{Filter{To: at}, false},
		{Filter{Key: []event.Dim{{Name: "uid", Value: "4"}}}, false},
	} {
		if got := c.f.Wants(&e); got != c.want {
			t.Errorf("%d: %v", i, got)
		}
	}
	all := Entry{Type: Rules, At: event.FromTime(at)}
	if !(&Filter{Key: uid}).Wants(&all) || (&Filter{Key: uid, KeyOnly: true}).Wants(&all) {
		t.Error("an entry that names no key is about all keys, unless keys alone are wanted")
	}
	several := Entry{Each: [][]event.Dim{{{Name: "uid", Value: "1"}}, both}}
	if !(&Filter{Key: uid, KeyOnly: true}).Wants(&several) {
		t.Error("a command for several keys is about each")
	}
}
