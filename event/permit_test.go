package event

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func permitOf(n int) Permit {
	p := Permit{ID: "p", At: NoTime}
	for i := range n {
		p.Keys = append(p.Keys, PermitKey{fmt.Sprintf("uid=%d", i), Micros(i)})
	}
	return p
}

// What clients control never keeps an event with a permit from being counted: it is shortened, or
// its key left out.
func TestPermitsAreCanonicalized(t *testing.T) {
	p := permitOf(MaxPermitKeys + 2)
	p.ID = strings.Repeat("p", MaxID+1)
	p.Keys[1].Key = "uid=" + strings.Repeat("u", MaxText)
	p.Keys[2].Key = ""
	e := Event{API: "a", Time: NoTime, BrokerTime: NoTime, Cost: One, Permit: p}
	if err := e.Validate(); err == nil || e.IsCanonical() {
		t.Fatalf("valid, or canonical: %v", err)
	}
	before := e.Clone()
	e.Canonicalize()
	if err := e.Validate(); err != nil || !e.IsCanonical() {
		t.Fatalf("not canonical: %v", err)
	}
	if len(e.Permit.ID) != 32 || len(e.Permit.Keys) != MaxPermitKeys || e.Permit.Keys[1].Key != "uid=3" {
		t.Fatalf("became %+v", e.Permit)
	}
	if !reflect.DeepEqual(before.Permit, p) {
		t.Fatalf("what it was copied from has changed: %+v", p)
	}
	roundTrip(t, &e)
}

// Keys that differ in no valid text are one, as in JSON: the last of them counts.
func TestPermitsForKeysThatBecomeTheSame(t *testing.T) {
	e := Event{API: "a", Time: NoTime, BrokerTime: NoTime, Cost: One, Permit: Permit{ID: "p", At: NoTime,
		Keys: []PermitKey{{"uid=\xff", 1}, {"uid=2", 2}, {"uid=\xfe", 3}}}}
	if e.IsCanonical() {
		t.Fatal("it is canonical")
	}
	e.Canonicalize()
	if err := e.Validate(); err != nil || !reflect.DeepEqual(e.Permit.Keys, []PermitKey{{"uid=\ufffd", 3}, {"uid=2", 2}}) {
		t.Fatalf("became %+v: %v", e.Permit, err)
	}
	roundTrip(t, &e)
}

func TestPermitsThatAreNotValid(t *testing.T) {
	twice, early, alone := permitOf(2), permitOf(1), Permit{At: 1}
	twice.Keys[1].Key = "uid=0"
	early.Keys[0].At = MinTime - 1
	for want, p := range map[string]Permit{"twice": twice, "outside the years": early, "without a permit": alone} {
		e := Event{API: "a", Time: NoTime, BrokerTime: NoTime, Cost: One, Permit: p}
		if err := e.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", p, err, want)
		}
	}
}

// The largest event whose texts are canonical is one.
func TestTheLargestPermitFits(t *testing.T) {
	e := Event{
		ID: strings.Repeat("\x01", MaxID), Refunds: strings.Repeat("\x01", MaxID), UID: strings.Repeat("\x01", MaxUID), API: strings.Repeat(`"`, MaxAPI),
		Outcome: strings.Repeat("o", MaxText), Time: MaxTime, BrokerTime: MaxTime, Cost: -MaxDecimal,
		Permit: Permit{ID: strings.Repeat("\x01", MaxID), At: NoTime},
	}
	for i := range MaxAttrs {
		e.Attrs = append(e.Attrs, Attr{fmt.Sprintf("%0*d", maxAttrName, i), StringValue(strings.Repeat("v", MaxText))})
	}
	for i := range MaxPermitKeys {
		e.Permit.Keys = append(e.Permit.Keys, PermitKey{fmt.Sprintf("%0*d", MaxText, i), MaxTime})
	}
	if err := e.Validate(); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, &e)
}
