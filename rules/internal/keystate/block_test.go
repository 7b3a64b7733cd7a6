package keystate

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tallygate/tallygate/event"
)

func TestBlocksComeBackAsTheyWere(t *testing.T) {
	const at = event.Micros(1_790_000_000_000_000)
	for _, want := range []Block{
		{Since: at, Until: at + 5*event.Minute, Count: 101 * event.One, Limit: 100 * event.One, Partition: 3, Offset: 118, ID: []byte("e1"), Display: 7, Shadow: true, Name: []byte("search/candidate")},
		{Since: -1, Until: math.MaxInt64, Count: event.MaxDecimal, Limit: 1, Partition: -1, Offset: -1, ID: []byte{}},
		{Since: at, Until: at, ID: make([]byte, 128)},
	} {
		r := varints{b: append(want.Append(nil), "rest"...)}
		got := r.block(Version)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Block{}), cmpopts.EquateEmpty()); r.bad || diff != "" || string(r.b) != "rest" {
			t.Errorf("rest %q, %v (- want):\n%s", r.b, r.bad, diff)
		}
	}
}

// Whatever is broken of what a section keeps is found, also behind what is sound.
func TestChecksLookAtAllThatASectionKeeps(t *testing.T) {
	const at = event.Micros(1_790_000_000_000_000)
	sound := Slot{Had: true, Block: Block{Since: at, Until: at}}
	ended := Slot{Had: true, Block: Block{Since: at, Until: at - 1}}
	for name, x := range map[string]*Extras{
		"the live block":      {Live: ended},
		"the candidate's":     {Live: sound, Candidate: ended},
		"a remembered event":  {Live: sound, Remembered: memory{{At: at, Amount: 1, Taken: 2}}},
		"a count below zero":  {Live: Slot{Had: true, Block: Block{Since: at, Until: at, Count: -1}}},
		"a limit below zero":  {Live: Slot{Had: true, Block: Block{Since: at, Until: at, Limit: -1}}},
		"an amount below 0":   {Remembered: memory{{At: at, Amount: -1, Taken: -1}}},
		"a cost below 0":      {Remembered: memory{{At: at, Cost: -1}}},
		"something taken < 0": {Remembered: memory{{At: at, Taken: -1}}},
		"a time too early":    {Remembered: memory{{At: event.MinTime - 1}}},
		"a time too late":     {Remembered: memory{{At: event.MaxTime + 1}}},
	} {
		if x.check() == nil {
			t.Errorf("%s is let pass", name)
		}
	}
	whole := Extras{Live: sound, Candidate: sound, Remembered: memory{{At: event.MinTime, Amount: 1, Taken: 1}, {At: event.MaxTime}}}
	if err := whole.check(); err != nil {
		t.Error(err)
	}
}

// What a section keeps besides its window comes back as it was, and what only newer programs keep is told
// from what is broken.
func TestExtrasComeBackAsTheyWere(t *testing.T) {
	const at = event.Micros(1_790_000_000_000_000)
	for name, want := range map[string]Extras{
		"a reset":      {WasReset: true, Reset: at},
		"at no moment": {WasReset: true},
		"a limit":      {Told: 300 * event.One, Tier: 77},
		"a denial":     {Tier: 77, WasTold: true, ToldAt: at},
		"an early one": {Tier: 77, WasTold: true, ToldAt: event.MinTime, Warned: []event.Micros{event.NoTime}},
		"a late one":   {Tier: 77, WasTold: true, ToldAt: event.MaxTime, Warned: []event.Micros{at, event.NoTime, at}},
		"all": {
			Live: Slot{Had: true, Steps: 2, Ended: at, Block: Block{Since: at, Until: at + 1, Name: []byte("a"), ID: []byte("e")}}, WasReset: true, Reset: -at,
			Told: 1, Tier: 9, WasTold: true, ToldAt: at + 1, Warned: []event.Micros{at}, Remembered: memory{{ID: 7, At: at, Amount: event.One, Cost: event.One}},
		},
	} {
		var got Extras
		b := want.Append(nil)
		if err := got.Read(b, Version); err != nil || got.check() != nil {
			t.Errorf("%s: %v, %v", name, err, got.check())
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (- want):\n%s", name, diff)
		}
		for n := range b[1:] {
			if err := new(Extras).Read(b[:n+1], Version); err == nil {
				t.Errorf("%s: %d of %d bytes are read", name, n+1, len(b))
			}
		}
	}
	if err := new(Extras).Read([]byte{hasMore, noFlags}, Version); !errors.Is(err, ErrNewer) {
		t.Errorf("a newer program's flags: %v", err)
	}
	for _, x := range []Extras{{Told: -1}, {WasReset: true, Reset: event.MaxTime + 1}, {WasTold: true, ToldAt: event.MaxTime + 1}} {
		if x.check() == nil {
			t.Errorf("%+v is let pass", x)
		}
	}
}

// Programs that know of no denials read a state that one has told a limit as it was, with a notice of long ago. Where a
// section remembers as many notices as it may, there is no room for one more, and it is not remembered when a denial
// told the limit.
func TestWhenADenialToldIsANoticeOfLongAgo(t *testing.T) {
	const at = event.Micros(1_790_000_000_000_000)
	x := Extras{Tier: 77, WasTold: true, ToldAt: at, Warned: []event.Micros{at}}
	asNotices := Extras{Tier: 77, Warned: []event.Micros{at, at - toldMark}}
	if got, want := x.Append(nil), asNotices.Append(nil); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
	if is := x.ToldAt - toldMark; is >= event.MinTime || is == event.NoTime {
		t.Errorf("%d may be a notice", is)
	}
	x.Warned = make([]event.Micros, MaxSteps)
	var back Extras
	if err := back.Read(x.Append(nil), Version); err != nil || back.WasTold || len(back.Warned) != MaxSteps || back.Tier != 77 {
		t.Errorf("%v: %+v", err, back)
	}
}
