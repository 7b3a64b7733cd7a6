package index

import (
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
)

func TestHashOfAKey(t *testing.T) {
	dims := []event.Dim{uid("42"), {Name: dimIP, Value: "2001:db8::7"}, {Name: "attrs.a", Value: "1"}}
	shape := func(names []string) *Shape { s := ShapeOf(names); return &s }
	hash := func(names ...string) uint64 {
		h, ok := shape(names).Hash("", dims)
		if !ok {
			t.Errorf("%q has no hash", names)
		}
		return h
	}
	if hash("attrs.a", "uid") == hash("uid") || hash("ip") == hash("ip/64") {
		t.Error("two keys have one hash")
	}
	for _, names := range [][]string{{"attrs.b"}, {"attrs.b", "uid"}} {
		if _, ok := shape(names).Hash("", dims); ok {
			t.Errorf("%q has a hash without attrs.b", names)
		}
	}
}

// Whoever asks keeps the dimensions as they were.
func TestCanonicalDimensionsAreACopy(t *testing.T) {
	long := strings.Repeat("x", 2000)
	dims := []event.Dim{uid(long), {Name: "attrs.a", Value: long}, {Name: "attrs.b", Value: "1"}}
	was := slices.Clone(dims)
	got := canonical(dims)
	if !slices.Equal(dims, was) {
		t.Error("the caller's dimensions were changed")
	}
	for i, d := range got {
		if want := event.CanonicalDim(d.Name, was[i].Value); d.Value != want || i < 2 && d.Value == long {
			t.Errorf("%s is %.20q…, want %.20q…", d.Name, d.Value, want)
		}
	}
}
