package workbench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/tools/suggest"
)

func TestSuggestFindsNumbers(t *testing.T) {
	s := &searches{n: 5000, users: 3} // 20 a minute each
	var told []Progress
	got, err := benchOf(s, Config{Mask: func(key string) string { return "•" + key[len(key)-1:] }}).
		Suggest(t.Context(), ask("suggest"), suggest.DefaultWish, func(p Progress) { told = append(told, p) })
	if err != nil {
		t.Fatal(err)
	}
	if got.Stopped != "" || got.Events != 5000 || got.Progress.Share() != 1 || !s.closed.Load() || len(told) == 0 {
		t.Errorf("%+v, told %v", got, told)
	}
	l := &got.Limits[0]
	if l.Keys != 3 || fmt.Sprint(l.Suggest) != "20" || !strings.Contains(got.Rules, "limit: 20\n") {
		t.Errorf("%+v", l)
	}
	if len(l.Top) != 3 || !strings.HasPrefix(l.Top[0].Key, "•") || strings.Contains(fmt.Sprint(l.Top), "user-") {
		t.Errorf("keys are not masked: %v", l.Top)
	}
}

// Its bounds are those of a replay; what it keeps of keys itself counts, too.
func TestSuggestEndsAtItsLimits(t *testing.T) {
	for want, c := range map[string]Config{
		"stopped after 2000 events":                    {ReplayEvents: 2000},
		"stopped, since the keys take more than 1 MiB": {ReplayMemory: 1 << 20},
		"stopped after 20ms":                           {ReplayWithin: 20 * time.Millisecond},
	} {
		s := &searches{n: 10, users: 1 << 30, forever: true}
		got, err := benchOf(s, c).Suggest(t.Context(), ask("suggest"), suggest.DefaultWish, ignore)
		if err != nil || got.Stopped != want || got.Events == 0 || !s.closed.Load() {
			t.Errorf("%s: %+v, %v", want, got, err)
		}
	}
}

func TestSuggestNeedsADraft(t *testing.T) {
	b := benchOf(&searches{users: 1}, Config{})
	for limit, want := range map[string]string{"10": "no limit is to be suggested", "x": `"x" is not a number`} {
		got, err := b.Suggest(t.Context(), ask(limit), suggest.DefaultWish, ignore)
		if err != nil || len(got.Mistakes) != 1 || got.Result != nil || !strings.Contains(got.Mistakes[0].Message, want) {
			t.Errorf("%s: %+v, %v", limit, got, err)
		}
	}
	if _, err := New(Config{}).Suggest(t.Context(), ask("suggest"), suggest.DefaultWish, ignore); err == nil || !strings.Contains(err.Error(), "no Kafka") {
		t.Errorf("without Kafka: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Suggest(ended, ask("suggest"), suggest.DefaultWish, ignore); !errors.Is(err, context.Canceled) {
		t.Errorf("a reader who left: %v", err)
	}
	long := ask("suggest")
	long.Text = strings.Repeat("x", 10<<20)
	slow := benchOf(&searches{users: 1}, Config{CheckWithin: time.Nanosecond})
	for _, err := range []error{
		second(b.Suggest(t.Context(), long, suggest.DefaultWish, ignore)),
		second(slow.Suggest(t.Context(), ask("suggest"), suggest.DefaultWish, ignore)),
	} {
		if _, ok := errors.AsType[*Refusal](err); !ok {
			t.Errorf("%v", err)
		}
	}
	if len(b.busy) != 0 || len(b.replays) != 0 || len(b.checks) != 0 {
		t.Error("a place is still taken")
	}
}

func second(_ *Suggested, err error) error { return err }
