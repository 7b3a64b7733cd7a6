package suggest

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/replay"
	"github.com/tallygate/tallygate/rules"
)

// past is a source of events.
type past struct {
	events []event.Event
	next   int
}

func (p *past) Next(context.Context) (*replay.Record, error) {
	if p.next == len(p.events) {
		return nil, io.EOF
	}
	p.next++
	return &replay.Record{Event: p.events[p.next-1], Broker: event.NoTime}, nil
}

func (p *past) Where() string        { return "past" }
func (p *past) Total() (int64, bool) { return int64(len(p.events)), false }
func (p *past) Done() int64          { return int64(p.next) }
func (p *past) Close() error         { return nil }

// draftOf compiles rules that stand below spec.rules.
func draftOf(t *testing.T, list string) *rules.Draft {
	t.Helper()
	const head = "apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: shop}\nspec:\n  rules:\n"
	d, err := rules.CompileDraft("draft.yaml", []byte(head+list), func(string) ([]byte, error) { return nil, io.EOF }, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// studied counts events by rules.
func studied(t *testing.T, list string, events []event.Event, wish Wish) (*Study, *Result) {
	t.Helper()
	s := New(draftOf(t, list))
	if err := s.Read(t.Context(), &past{events: events}); err != nil {
		t.Fatal(err)
	}
	r, err := s.Result(wish)
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}

// one is an event at so many seconds.
func one(uid string, seconds int) event.Event {
	return event.Event{UID: uid, API: "a", Cost: event.One, Time: event.Micros(seconds) * event.Second, BrokerTime: event.NoTime}
}

func has(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("lacks %q:\n%s", w, text)
		}
	}
}
