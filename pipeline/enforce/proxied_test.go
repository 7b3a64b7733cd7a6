package enforce

import (
	"slices"
	"testing"
)

type heldHere struct{ heard []string }

func (h *heldHere) Done(outcome string) { h.heard = append(h.heard, outcome) }
func (h *heldHere) Cancel()             { h.heard = append(h.heard, "cancelled") }

type heldByBoth struct{ heldHere }

func (h *heldByBoth) Leave() { h.heard = append(h.heard, "left") }

func TestPassOn(t *testing.T) {
	for emit, want := range map[bool][2][]string{true: {{"success"}, {"success"}}, false: {nil, {"left"}}} {
		here, both := &heldHere{}, &heldByBoth{}
		for _, a := range []Admission{{}, {Held: here}, {Held: both}} {
			a.PassOn(emit)
		}
		if !slices.Equal(here.heard, want[0]) || !slices.Equal(both.heard, want[1]) {
			t.Errorf("emit %v: %v, %v, want %v", emit, here.heard, both.heard, want)
		}
	}
}
