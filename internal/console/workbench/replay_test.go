package workbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/internal/tools/replay"
)

// searches are n events of so many users, a second apart. With forever they do not end.
type searches struct {
	n, users int
	forever  bool
	done     atomic.Int64
	closed   atomic.Bool
	hold     chan struct{} // nil: nothing waits
}

func (s *searches) Next(ctx context.Context) (*replay.Record, error) {
	if s.hold != nil {
		select {
		case <-s.hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	i := int(s.done.Load())
	if i == s.n && !s.forever {
		return nil, io.EOF
	}
	s.done.Add(1)
	at := event.FromTime(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)) + event.Micros(i)*event.Second
	return &replay.Record{Event: event.Event{UID: fmt.Sprint("user-", i%s.users), API: "search", Cost: event.One, Time: at, BrokerTime: event.NoTime}, Broker: at}, nil
}

func (s *searches) Where() string        { return "" }
func (s *searches) Total() (int64, bool) { return int64(s.n), false }
func (s *searches) Done() int64          { return s.done.Load() }
func (s *searches) Close() error         { s.closed.Store(true); return nil }

func benchOf(s *searches, c Config) *Bench {
	c.Events = func(context.Context, time.Time) (replay.Source, error) { return s, nil }
	return New(c)
}

func ask(limit string) *Ask {
	return &Ask{Text: rulesOf(limit), Published: &api.Rules{Version: 7, RuleRecord: api.RuleRecord{Source: rulesOf("10")}}}
}

func ignore(Progress) {}

func TestReplayComparesWithWhatRuns(t *testing.T) {
	s := &searches{n: 5000, users: 3} // 20 a minute each
	var told []Progress
	got, err := benchOf(s, Config{Mask: func(key string) string { return "•" + key[len(key)-1:] }}).
		Replay(t.Context(), ask("25"), func(p Progress) { told = append(told, p) })
	if err != nil {
		t.Fatal(err)
	}
	if got.Stopped != "" || got.Events != 5000 || got.Version != 7 || got.Progress.Share() != 1 || !s.closed.Load() || len(told) == 0 {
		t.Errorf("%+v, told %v", got, told)
	}
	d := got.Against
	if d.NoLonger != 3 || d.Newly != 0 || len(d.Rules) != 1 || d.Rules[0].NoLonger != 3 {
		t.Errorf("%+v", d)
	}
	if len(d.TopGone) != 3 || !strings.HasPrefix(d.TopGone[0].Key, "•") || strings.Contains(fmt.Sprint(d.TopGone, got.Top), "user-") {
		t.Errorf("keys are not masked: %v", d.TopGone)
	}
}

func TestReplayEndsAtItsLimits(t *testing.T) {
	for want, c := range map[string]Config{
		"stopped after 2000 events":                    {ReplayEvents: 2000},
		"stopped, since the keys take more than 1 MiB": {ReplayMemory: 1 << 20},
		"stopped after 20ms":                           {ReplayWithin: 20 * time.Millisecond},
	} {
		s := &searches{n: 10, users: 1 << 30, forever: true}
		got, err := benchOf(s, c).Replay(t.Context(), ask("25"), ignore)
		if err != nil || got.Stopped != want || !got.Interrupted || got.Events == 0 || !s.closed.Load() {
			t.Errorf("%s: %+v, %v", want, got, err)
		}
	}
}

// Whoever leaves the page ends the replay, and one reader has one at a time, all together two.
func TestReplaysAreFew(t *testing.T) {
	s := &searches{n: 10, users: 1, hold: make(chan struct{})}
	b := benchOf(s, Config{})
	ended := make(chan error, 2)
	leave := map[string]context.CancelFunc{}
	begin := func(reader string) {
		ctx, cancel := context.WithCancel(t.Context())
		leave[reader] = cancel
		a := ask("25")
		a.Reader = reader
		begun := make(chan struct{}, 1)
		go func() {
			_, err := b.Replay(ctx, a, func(Progress) { begun <- struct{}{} })
			ended <- err
		}()
		<-begun
	}
	refused := func(reader, want string) {
		t.Helper()
		a := ask("25")
		a.Reader = reader
		_, err := b.Replay(t.Context(), a, ignore)
		if r, ok := errors.AsType[*Refusal](err); !ok || !r.Busy || !strings.Contains(r.Detail, want) {
			t.Errorf("%s: %v", reader, err)
		}
	}
	begin("alice")
	refused("alice", "of yours")
	begin("bob")
	refused("carol", "of others")
	leave["alice"]()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("alice has left: %v", err)
	}
	testrun.Eventually(t, "a place is free", func() bool { return len(b.replays) == 1 })
	close(s.hold)
	if err := <-ended; err != nil {
		t.Errorf("bob: %v", err)
	}
	a := ask("25")
	a.Reader = "alice"
	if _, err := b.Replay(t.Context(), a, ignore); err != nil {
		t.Errorf("alice again: %v", err)
	}
	leave["bob"]()
}

func TestReplayNeedsEventsAndValidRules(t *testing.T) {
	if _, err := New(Config{}).Replay(t.Context(), ask("25"), ignore); err == nil || !strings.Contains(err.Error(), "no Kafka") {
		t.Errorf("without Kafka: %v", err)
	}
	dead := New(Config{Events: func(ctx context.Context, _ time.Time) (replay.Source, error) { return nil, errors.New("no route") }})
	if _, err := dead.Replay(t.Context(), ask("25"), ignore); err == nil || !strings.Contains(err.Error(), "read past events from Kafka: no route") {
		t.Errorf("a dead Kafka: %v", err)
	}
	got, err := benchOf(&searches{users: 1}, Config{}).Replay(t.Context(), ask("x"), ignore)
	if err != nil || len(got.Mistakes) != 1 || got.Result != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if len(dead.busy) != 0 || len(dead.replays) != 0 {
		t.Error("a place is still taken")
	}
}
