package rules

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
)

// isExempt compiles a rule that counts by a key and exempts some, and asks for one.
func isExempt(t *testing.T, key, exempt string, dims ...event.Dim) bool {
	t.Helper()
	set := compileRules(t, fmt.Sprintf("    - {name: a, key: %s, match: {api: x}, limit: 5, per: 1h, exempt: [%s], then: {block: 1m}}\n", key, exempt))
	return set.Rules[0].exemptKeys.covers(dims, noon)
}

func TestExemptionsAreComparedAsKeysAre(t *testing.T) {
	for _, tt := range []struct {
		key, exempt string
		dims        []event.Dim
		want        bool
	}{
		{"ip", `{ip: "::ffff:192.0.2.1", reason: r}`, []event.Dim{{Name: "ip", Value: "192.0.2.1"}}, true},
		{"ip", `{ip: "2001:DB8::0:1", reason: r}`, []event.Dim{{Name: "ip", Value: "2001:db8::1"}}, true},
		{"ip/64", `{ip/64: "2001:db8::7", reason: r}`, []event.Dim{{Name: "ip/64", Value: "2001:db8::/64"}}, true},
		{"ip/64", `{ip/64: "2001:db8::/64", reason: r}`, []event.Dim{{Name: "ip/64", Value: "2001:db8::/64"}}, true},
		{"ip/64", `{ip/64: 192.0.2.1, reason: r}`, []event.Dim{{Name: "ip/64", Value: "192.0.2.1"}}, true},
		{"attrs.n", `{attrs.n: 42.0, reason: r}`, []event.Dim{{Name: "attrs.n", Value: "42"}}, true},
		{"uid", `{uid: 1, reason: r}, {uid: 2, reason: r, expires: "2026-11-21T12:00:00Z"}`, []event.Dim{{Name: "uid", Value: "2"}}, false},
		{"uid", `{uid: 2, reason: r, expires: "2026-11-21T12:00:00.000001Z"}`, []event.Dim{{Name: "uid", Value: "2"}}, true},
		{"uid", `{uid: 2, reason: r, expires: "2026-01-01T00:00:00Z"}, {uid: 2, reason: r}`, []event.Dim{{Name: "uid", Value: "2"}}, true},
		{"[uid, ip]", `{uid: 2, reason: r}`, []event.Dim{{Name: "ip", Value: "192.0.2.1"}, {Name: "uid", Value: "2"}}, true},
		{"[uid, ip]", `{uid: 2, ip: 192.0.2.1, reason: r}`, []event.Dim{{Name: "ip", Value: "192.0.2.2"}, {Name: "uid", Value: "2"}}, false},
	} {
		if got := isExempt(t, tt.key, tt.exempt, tt.dims...); got != tt.want {
			t.Errorf("%s, exempt %s, key %v: %v, want %v", tt.key, tt.exempt, tt.dims, got, tt.want)
		}
	}
}

const fromFile = header + "  exempt: vip.yaml\n" + `  rules:
    - {name: a, match: {api: x}, limit: 5, per: 1h, exempt: vip.yaml, then: {block: 1m}}
    - {name: b, key: ip, match: {api: x}, limit: 5, per: 1h, then: {block: 1m}}
`

func TestExemptionsFromAFile(t *testing.T) {
	reads := 0
	read := func(list string) func(string) ([]byte, error) {
		return func(name string) ([]byte, error) {
			if reads++; name != "vip.yaml" {
				return nil, fs.ErrNotExist
			}
			return []byte(list), nil
		}
	}
	set, err := CompileWith("rules.yaml", []byte(fromFile), read("- {uid: 1, reason: a friend}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if reads != 1 || string(set.Files["vip.yaml"]) != "- {uid: 1, reason: a friend}\n" {
		t.Errorf("%d reads, files %v", reads, set.Files)
	}
	uid := []event.Dim{{Name: "uid", Value: "1"}}
	if !set.Rules[0].exemptKeys.covers(uid, noon) || set.Rules[1].exemptKeys != nil {
		t.Errorf("%+v %+v", set.Rules[0].exempt, set.Rules[1].exempt)
	}
	other, err := CompileWith("rules.yaml", []byte(fromFile), read("- {uid: 2, reason: a friend}\n"))
	if err != nil || other.Hash == set.Hash {
		t.Errorf("another list, the same hash: %v", err)
	}
	if other.Limits[0].judged == set.Limits[0].judged || other.Limits[1].judged != set.Limits[1].judged {
		t.Error("who is exempt from a rule is judged otherwise, and from that rule only")
	}
	_, err = CompileWith("rules.yaml", []byte(fromFile), read("- {uid: 1, reason: a friend}\n- {user: 2, reason: x}\n"))
	mistakes, ok := errors.AsType[Errors](err)
	if !ok || len(mistakes) != 1 || mistakes[0].File != "vip.yaml" || mistakes[0].Line != 2 || !strings.Contains(mistakes[0].Message, "user") {
		t.Errorf("a mistake in the file: %v", err)
	}
	if _, err = CompileWith("rules.yaml", []byte(fromFile), read("uid: 1\n")); err == nil || !strings.Contains(err.Error(), "vip.yaml:1:1: a file of exemptions holds a list of them") {
		t.Errorf("no list: %v", err)
	}
}
