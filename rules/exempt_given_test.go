package rules

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// Who exempted a key and why could not be told: the state kept only until when.
func TestAnExemptionKeepsWhoGaveItAndWhy(t *testing.T) {
	set := compileRules(t, "    - {name: a, match: {api: x}, limit: 5, per: 1h, then: {block: 1m}}\n")
	key, s := []byte("uid=1"), set.NewStepper()
	give := func(state []byte, rule string, lasts event.Micros, why Giver) []byte {
		next, _ := s.Command(nil, state, key, Command{Kind: CommandExempt, Rule: rule, At: noon, Until: noon + lasts, Giver: why})
		return next
	}
	ticket := Giver{By: "alice", OnBehalfOf: "bob", Reason: "ticket 7"}
	state := give(nil, "a", event.Hour, ticket)
	state = give(state, "", 2*event.Hour, Giver{Reason: "load\x00 test"})
	state = give(state, "b", 3*event.Hour, Giver{})
	want := []Given{{"a", noon + event.Hour, ticket}, {"", noon + 2*event.Hour, Giver{Reason: "load test"}}, {"b", noon + 3*event.Hour, Giver{}}}
	if diff := cmp.Diff(want, ExemptionsOf(state).Given(noon)); diff != "" {
		t.Errorf("(- expected, + got)\n%s", diff)
	}
	if got := ExemptionsOf(state).Given(noon + event.Hour); len(got) != 2 {
		t.Errorf("an hour later there are %v, want two", got)
	}
	long := give(nil, "", event.Hour, Giver{By: strings.Repeat("é", 500), Reason: strings.Repeat("é", 5000)})
	if got := ExemptionsOf(long).Given(noon)[0]; len(got.By) != maxWhoNote || len(got.Reason) != maxReasonNote || strings.Contains(got.Reason, "\uFFFD") {
		t.Errorf("of a long text is kept %d and %d bytes: %q", len(got.By), len(got.Reason), got.Reason)
	}
	state = nil
	for i := range keystate.MaxExemptions + 1 {
		state = give(state, fmt.Sprint(i), event.Hour, ticket)
	}
	given := ExemptionsOf(state).Given(noon)
	if len(given) != keystate.MaxExemptions || CheckState(state) != nil {
		t.Errorf("a key has %d exemptions, want %d; %v", len(given), keystate.MaxExemptions, CheckState(state))
	}
}

// A program that knows of no notes takes one for an exemption from a rule that there is not. When it gives
// the exemption anew, it leaves the note behind, which then is nobody's.
func TestNotesThatOlderProgramsLeaveBehind(t *testing.T) {
	note := func(rule, text string, until event.Micros) keystate.Exemption {
		return keystate.Exemption{Until: until, Rule: []byte("\x00" + rule + "\x00" + text)}
	}
	x := keystate.KeySection{Exempt: []keystate.Exemption{note("a", "old", noon), {Until: 2 * noon, Rule: []byte("a")}, note("a", "other end", noon), note("b", "other", 2*noon)}}
	section := x.AppendSection(nil)
	sec, _, ok := keystate.Cut(section)
	var read keystate.KeySection
	if err := read.Read(sec.Body()); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if len(read.Exempt) != 1 || len(read.Exempt[0].Note) > 0 {
		t.Errorf("there is %+v, want one without a note", read.Exempt)
	}
	read.Exempt[0].Note = []byte("new")
	if again := read.AppendSection(nil); !bytes.Contains(again, []byte("\x00a\x00new")) {
		t.Errorf("%q", again)
	}
}

// The exemptions that are listed for a key are those that it is judged by.
func TestTheExemptionsOfAKeyAreThoseItIsJudgedBy(t *testing.T) {
	set, err := Compile("test.yaml", []byte(`
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  networks: {office: [10.0.0.0/8]}
  exempt: [{uid: 7, reason: tester}, {ip: office, reason: our own}]
  rules:
    - {name: a, key: [uid, api], match: {api: x}, limit: 5, per: 1h, exempt: [{uid: 8, api: x, reason: batch, expires: 2026-11-21T00:00:00Z}], then: {block: 1m}}
    - {name: b, key: ip, match: {api: x}, limit: 5, per: 1h, exempt: [{ip: 192.0.2.0/24, reason: partner}], then: {block: 1m}}
    - {name: c, key: uid, match: {api: x}, limit: 5, per: 1h, then: {block: 1m}}
`))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range set.Exemptions() {
		all = append(all, fmt.Sprintf("%s %s%s %v", e.Reason, event.FormatKey(e.Key), e.List, e.Rules))
	}
	if diff := cmp.Diff([]string{"batch api=x&uid=8 [a]", "tester uid=7 [a c]", "partner  [b]", "our own office [b]"}, all); diff != "" {
		t.Errorf("(- expected, + got)\n%s", diff)
	}
	early, late := event.Micros(0), event.MaxTime
	for _, l := range set.Limits {
		for _, key := range []string{"api=x&uid=7", "api=x&uid=8", "api=y&uid=8", "uid=7", "uid=8", "ip=10.1.2.3", "ip=192.0.2.7", "ip=192.0.3.7"} {
			dims, err := event.ParseKey([]byte(key))
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range []event.Micros{early, late} {
				if exempt := l.Rule.exemptKeys.covers(dims, at); exempt != (len(l.Exempts(dims, at)) > 0) {
					t.Errorf("%s at %v: exempt is %v, and %v is listed", key, at, exempt, l.Exempts(dims, at))
				}
			}
		}
	}
}
