package protocol

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRecordsComeBackAsTheyWere(t *testing.T) {
	for key, want := range map[string]Record{
		"\x00level|uid=42": {Level: &Level{
			Key: "uid=42", Seq: 7, Latest: 1_790_000_000_000_001, Settles: []string{"a", "b"}, Exempt: 9,
			Sections: []Section{{Name: "f00d", Steps: []Step{{1_790_000_000_000_002, 1_000_000}, {1_790_000_000_000_003, 1}}, Tier: 5_000_000_000}, {Name: "beef", Level: 3}},
		}},
		"\x00level|uid=a|b": {Gone: "uid=a|b"},
		"\x00grants":        {Grants: &Grants{Run: "r", Life: "l", Until: 4}},
		"\x00rules":         {Version: 12},
	} {
		k, v, err := want.Encode()
		if err != nil || string(k) != key {
			t.Errorf("the key is %q, %v, want %q", k, err, key)
		}
		got, err := ParseRecord(k, v)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (- want):\n%s", err, diff)
		}
	}
}

// A program that knows no hold takes grants under some limits for none, and those of such a program are under all.
func TestGrantsUnderSomeLimits(t *testing.T) {
	want := Record{Grants: &Grants{Run: "r", Life: "l", Until: 4, Hold: 3, Rules: 1 << 50}}
	key, value, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var before struct {
		Run, Life string
		Until     int64
	}
	if err := json.Unmarshal(value, &before); err != nil || before.Run != "r" || before.Life != "l" || before.Until != 0 {
		t.Errorf("%s: %+v, %v", value, before, err)
	}
	got, err := ParseRecord(key, value)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (- want):\n%s", err, diff)
	}
}

func TestOtherRecordsAreSkippedAndBadOnesTold(t *testing.T) {
	for _, key := range []string{"", "uid=42|rule", "\x00fence", "\x00level"} {
		if _, err := ParseRecord([]byte(key), []byte("{}")); !errors.Is(err, ErrOtherRecord) {
			t.Errorf("%q: %v", key, err)
		}
	}
	for _, key := range []string{"\x00level|uid=1", "\x00grants", "\x00rules"} {
		if _, err := ParseRecord([]byte(key), []byte("{")); err == nil || errors.Is(err, ErrOtherRecord) {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func TestVersionsOfTheRules(t *testing.T) {
	one, other := [16]byte{3, 15: 1}, [16]byte{3, 15: 2}
	a, b := RulesVersion(one, 7), RulesVersion(one, 8)
	if a >= b || !SameTopic(a, b) || RulesNumber(a) != 7 || b >= 1<<53 {
		t.Errorf("%x, %x", a, b)
	}
	if c := RulesVersion(other, 7); SameTopic(a, c) || RulesNumber(c) != 7 {
		t.Errorf("%x, %x of another topic", a, c)
	}
	if c := RulesVersion([16]byte{}, 7); c != 7 || SameTopic(a, c) { // old brokers have no ids
		t.Errorf("%x", c)
	}
	if c := RulesVersion(one, 0); c != 0 {
		t.Errorf("%x of rules in no topic", c)
	}
}
