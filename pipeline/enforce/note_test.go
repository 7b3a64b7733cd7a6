package enforce

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

func TestNotesChangeAnEvent(t *testing.T) {
	ctx := &NoteContext{Context: context.WithValue(t.Context(), "key", "value")} //nolint:revive,staticcheck // any key is passed on
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	Note(inner, Outcome("success"), Attr("plan", event.StringValue("pro")), Attr("region", event.StringValue("us")))
	Note(inner, Outcome("failure"), Cost(2*event.One), EventID("o1"), Cost(-event.One), Attr("", event.BoolValue(true)))
	e := event.Event{API: "x", Outcome: "success", Cost: event.One, Attrs: []event.Attr{{Name: "region", Value: event.StringValue("eu")}}}
	ctx.Notes.Apply(&e)
	want := event.Event{API: "x", Outcome: "failure", Cost: 2 * event.One, ID: "o1", Attrs: []event.Attr{
		{Name: "region", Value: event.StringValue("us")}, {Name: "plan", Value: event.StringValue("pro")},
	}}
	if diff := cmp.Diff(want, e, cmp.Comparer(func(a, b event.Event) bool { return fmt.Sprint(a) == fmt.Sprint(b) })); diff != "" {
		t.Error(diff)
	}
	Note(inner, Outcome("late")) // the handler has returned
	if ctx.Notes.Apply(&e); e.Outcome != "failure" {
		t.Errorf("a late note made the outcome %q", e.Outcome)
	}
	if inner.Value("key") != "value" {
		t.Error("what the context around has is lost")
	}
	Note(t.Context(), Outcome("nobody hears it"))
}

// However much is noted, the event stays one that is sent.
func TestNotesLeaveAnEventValid(t *testing.T) {
	var n Notes
	for i := range 100 {
		n.Add(Attr(fmt.Sprint("a", i), event.BoolValue(true)))
	}
	n.Add(Outcome(strings.Repeat("o", 5000)), EventID(strings.Repeat("i", 5000)))
	e := event.Event{API: "x", UID: "42", Cost: event.One}
	n.Apply(&e)
	if e.Canonicalize(); e.Validate() != nil || len(e.Attrs) != event.MaxAttrs {
		t.Errorf("%d attributes, %v", len(e.Attrs), e.Validate())
	}
}

func TestNotesOfManyGoroutines(t *testing.T) {
	ctx := &NoteContext{Context: t.Context()}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() { Note(ctx, Attr(fmt.Sprint("a", i), event.BoolValue(true))) })
	}
	all.Go(func() { ctx.Notes.Apply(&event.Event{}) })
	all.Wait()
}

func TestANoteThatNobodyTakesAllocatesNothing(t *testing.T) {
	ctx := t.Context()
	if n := testrun.Allocs(100, func() { Note(ctx, Outcome("failure"), Cost(2*event.One)) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestParseNote(t *testing.T) {
	for _, c := range []struct {
		values []string
		want   string // the event, or what the error says
	}{
		{[]string{""}, "x success 1 []"},
		{[]string{"outcome=failure, cost=2, attrs.discounted=true"}, "x failure 2 [discounted=true/boolean]"},
		{[]string{`outcome="not paid",cost=0.5`, "id=o-1"}, "x not paid 0.5 o-1 []"},
		{[]string{`attrs.Plan="a \"b\" \\", attrs.n=-42.50, attrs.ok, attrs.no=?0, attrs.yes=?1, attrs.t=text/plain;q=1;x`},
			`x success 1 [Plan=a "b" \/string n=-42.5/number ok=true/boolean no=false/boolean yes=true/boolean t=text/plain/string]`},
		{[]string{"id=17, cost=0, cost=3"}, "x success 3 17 []"},
		{[]string{"outcome"}, "outcome has no text"},
		{[]string{"cost=-1"}, "not negative"},
		{[]string{"cost=many"}, "not negative"},
		{[]string{"attrs.=1"}, `unknown key "attrs."`},
		{[]string{"uid=1"}, `unknown key "uid"`},
		{[]string{"outcome=a outcome=b"}, "a comma is missing"},
		{[]string{"outcome=a,"}, "nothing follows the last comma"},
		{[]string{"outcome="}, "outcome: nothing follows the ="},
		{[]string{"=a"}, "a key begins with a letter"},
		{[]string{`id="a`}, "does not end"},
		{[]string{"id=\"\xff\""}, "ASCII"},
		{[]string{"attrs.a=?2"}, "?0 or ?1"},
		{[]string{"attrs.a=(1 2)"}, "neither a number nor a text"},
		{[]string{"attrs.a=1.2345"}, "neither a number"},
	} {
		notes, err := ParseNote(c.values...)
		got := fmt.Sprint(err)
		if err == nil {
			e := event.Event{API: "x", Outcome: "success", Cost: event.One}
			for i := range notes {
				notes[i].apply(&e)
			}
			attrs := []string{}
			for _, a := range e.Attrs {
				attrs = append(attrs, a.Name+"="+a.Value.Text+"/"+a.Value.Kind.String())
			}
			if got = fmt.Sprintf("%s %s %v %s %v", e.API, e.Outcome, e.Cost, e.ID, attrs); e.ID == "" {
				got = fmt.Sprintf("%s %s %v %v", e.API, e.Outcome, e.Cost, attrs)
			}
		}
		if err != nil && !strings.Contains(got, c.want) || err == nil && got != c.want {
			t.Errorf("%q: %s, want %s", c.values, got, c.want)
		}
	}
	if http.CanonicalHeaderKey(NoteHeader) != NoteHeader {
		t.Error("servers write the field's name in another way")
	}
}

// Whatever a server writes there, the event is one that is sent.
func FuzzParseNote(f *testing.F) {
	f.Add(`outcome=failure, cost=2, attrs.discounted=true, attrs.x="y\"";p=1, id=*a, attrs.z`)
	f.Fuzz(func(t *testing.T, text string) {
		notes, err := ParseNote(text)
		if err != nil && notes != nil {
			t.Fatal("notes beside an error")
		}
		var n Notes
		n.Add(notes...)
		e := event.Event{API: "x", UID: "42", Cost: event.One}
		n.Apply(&e)
		if e.Canonicalize(); e.Validate() != nil {
			t.Fatalf("%q: %+v: %v", text, e, e.Validate())
		}
	})
}
