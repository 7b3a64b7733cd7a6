package shape

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const every = 250 * time.Millisecond

// stage lets requests wait, and notes who left when.
type stage struct {
	t     *testing.T
	s     Shaper
	began time.Time
	all   sync.WaitGroup

	mu   sync.Mutex
	left []string
}

func newStage(t *testing.T) *stage { return &stage{t: t, began: time.Now()} }

func (s *stage) since() time.Duration { return time.Since(s.began) }

func (s *stage) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = append(s.left, fmt.Sprintf(format, args...))
}

// enter lets one enter, and wait for its turn.
func (s *stage) enter(ctx context.Context, name string, e Entry) {
	turn, err := s.s.Enter(e)
	if turn == nil {
		s.note("%s not at all: %v", name, s.says(err))
		return
	}
	s.all.Go(func() {
		defer turn.Leave()
		if err := turn.Wait(ctx); err != nil {
			s.note("%s gives up after %v: %v", name, s.since(), s.says(err))
			return
		}
		s.note("%s after %v", name, s.since())
		turn.Release()
	})
	synctest.Wait() // so that the next one enters behind it
}

// says is an error with its times counted from the beginning.
func (s *stage) says(err error) string {
	if late, ok := errors.AsType[*Late](err); ok {
		return fmt.Sprintf("full %v, its turn at %v", late.Full, late.Turn.Sub(s.began))
	}
	return fmt.Sprint(err)
}

// want waits for all. Several may leave at the same moment, so only the moments count.
func (s *stage) want(want ...string) {
	s.t.Helper()
	s.all.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.left)
	if slices.Sort(want); !slices.Equal(s.left, want) {
		s.t.Errorf("\n got %q\nwant %q", s.left, want)
	}
	s.left = nil
}

func (s *stage) from(d time.Duration) time.Time { return s.began.Add(d) }

// Eight who waited for the same moment left within a millisecond.
func TestEightLeaveOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		for i := range 8 {
			s.enter(t.Context(), strconv.Itoa(i), Entry{Key: "a", From: s.from(time.Second), Interval: every, Most: 3 * time.Second})
			time.Sleep(time.Millisecond)
		}
		s.want("0 after 1s", "1 after 1.25s", "2 after 1.5s", "3 after 1.75s", "4 after 2s", "5 after 2.25s", "6 after 2.5s", "7 after 2.75s")
	})
}

func TestKeysDontWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		for _, key := range []string{"a", "b"} {
			for i := range 2 {
				s.enter(t.Context(), key+strconv.Itoa(i), Entry{Key: key, From: s.from(time.Second), Interval: every, Most: 3 * time.Second})
			}
			time.Sleep(time.Millisecond)
		}
		s.want("a0 after 1s", "a1 after 1.25s", "b0 after 1s", "b1 after 1.25s")
	})
}

// Who would wait too long, or for whom there is no room, learns at once when a turn is free.
func TestNobodyWaitsInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		e := Entry{Key: "a", From: s.from(time.Second), Interval: every, Most: 1250 * time.Millisecond, Room: 3}
		s.enter(t.Context(), "far", Entry{Key: "a", From: s.from(time.Hour), Interval: every, Most: time.Minute})
		if s.s.Busy() {
			t.Error("there is a line although nobody waits")
		}
		s.enter(t.Context(), "0", e)
		s.enter(t.Context(), "1", e)
		s.enter(t.Context(), "late", e)
		e.Most = time.Minute
		s.enter(t.Context(), "2", e)
		s.enter(t.Context(), "full", e)
		e.Room = -1
		s.enter(t.Context(), "asks only", e)
		e.Key = "b"
		s.enter(t.Context(), "asks for another", e)
		s.want("far not at all: full false, its turn at 1h0m0s", "late not at all: full false, its turn at 1.5s",
			"full not at all: full true, its turn at 1.75s", "asks only not at all: full true, its turn at 1.75s",
			"asks for another not at all: full true, its turn at 1s",
			"0 after 1s", "1 after 1.25s", "2 after 1.5s")
	})
}

func TestWhoLeavesLetsOthersMoveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		e := Entry{Key: "a", From: s.from(time.Second), Interval: every, Most: time.Minute}
		first, leaveFirst := context.WithCancel(t.Context())
		third, leaveThird := context.WithCancel(t.Context())
		s.enter(first, "0", e)
		s.enter(t.Context(), "1", e)
		s.enter(third, "2", e)
		s.enter(t.Context(), "3", e)
		leaveThird()
		synctest.Wait()
		leaveFirst()
		s.want("2 gives up after 0s: context canceled", "0 gives up after 0s: context canceled", "1 after 1s", "3 after 1.25s")
	})
}

// Who asks and is told to wait keeps the place. Those behind move with it, and who would wait too
// long then is told at once.
func TestALineIsPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		e := Entry{Key: "a", From: s.from(time.Second), Interval: every, Most: time.Minute}
		turn, err := s.s.Enter(e)
		if err != nil {
			t.Fatal(err)
		}
		s.enter(t.Context(), "1", e)
		e.Most = 2 * time.Second
		s.enter(t.Context(), "2", e)
		e.Most = time.Minute
		s.enter(t.Context(), "3", e)
		if err := turn.Wait(t.Context()); err != nil || s.since() != time.Second {
			t.Fatalf("%v after %v", err, s.since())
		}
		if err := turn.Postpone(s.from(1750 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := turn.Wait(t.Context()); err != nil || s.since() != 1750*time.Millisecond {
			t.Fatalf("%v after %v", err, s.since())
		}
		turn.Release()
		turn.Leave() // changes nothing
		s.want("2 gives up after 1s: full false, its turn at 2.25s", "1 after 2s", "3 after 2.25s")
	})
}

func TestALineIsPutOffForTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		e := Entry{Key: "a", From: s.from(time.Second), Interval: every, Most: 2 * time.Second}
		turn, err := s.s.Enter(e)
		if err != nil {
			t.Fatal(err)
		}
		s.enter(t.Context(), "1", e)
		if err := turn.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		late, ok := errors.AsType[*Late](turn.Postpone(s.from(time.Minute)))
		if !ok || late.Turn.Sub(s.began) != time.Minute {
			t.Errorf("%v, want that its turn is in a minute", late)
		}
		if turn.Postpone(s.from(0)) == nil || turn.Wait(t.Context()) == nil {
			t.Error("it waits again after it was sent away")
		}
		turn.Release()
		s.want("1 gives up after 1s: full false, its turn at 1m0s")
		if s.s.Busy() {
			t.Error("there is a line although all were sent away")
		}
	})
}

// What one who enters knows moves those who wait, to an earlier moment, too.
func TestNewsMoveALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		e := Entry{Key: "a", From: s.from(time.Minute), Interval: every, Most: time.Hour}
		s.enter(t.Context(), "0", e)
		e.From = s.from(time.Second)
		s.enter(t.Context(), "1", e)
		s.want("0 after 1s", "1 after 1.25s")
	})
}

// Who is not denied does not overtake those who wait, and wakes them: what they wait for is over.
func TestBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		behind := Entry{Key: "a", Most: time.Second, Behind: true}
		s.enter(t.Context(), "nobody waits", behind)
		e := Entry{Key: "a", From: s.from(time.Minute), Interval: every, Most: time.Hour}
		for i := range 3 {
			s.enter(t.Context(), strconv.Itoa(i), e)
		}
		time.Sleep(time.Second)
		s.enter(t.Context(), "behind", behind)
		behind.Most = 500 * time.Millisecond
		s.enter(t.Context(), "late", behind)
		s.want("nobody waits not at all: <nil>", "0 after 1s", "late not at all: full false, its turn at 2s",
			"1 after 1.25s", "2 after 1.5s", "behind after 1.75s")

		// The last one left just now: an interval is kept, unless one would have to go away for it.
		if !s.s.Busy() {
			t.Fatal("the line is gone before its next turn")
		}
		behind.Most = every - 1
		s.enter(t.Context(), "not for so long", behind)
		time.Sleep(every - 1)
		behind.Most = time.Second
		s.enter(t.Context(), "next", behind)
		s.want("not for so long not at all: <nil>", "next after 2s")
		time.Sleep(every)
		synctest.Wait()
		if s.s.Busy() {
			t.Error("the line is there an interval after the last one left")
		}
		s.enter(t.Context(), "after that", behind)
		s.want("after that not at all: <nil>")
	})
}

// Where the next turn is later than anybody waits, nothing is kept of the line: the one after it is
// not denied because of it.
func TestALongIntervalIsNotRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.enter(t.Context(), "0", Entry{Key: "a", From: s.from(time.Second), Interval: time.Hour, Most: 2 * time.Second})
		s.want("0 after 1s")
		if s.s.Busy() {
			t.Error("the line is kept for an hour")
		}
	})
}

// One who asks for long holds the others up. They give up when they said they would.
func TestAWaitIsBoundedByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		e := Entry{Key: "a", From: s.from(time.Second), Interval: every, Most: 2 * time.Second}
		turn, err := s.s.Enter(e)
		if err != nil {
			t.Fatal(err)
		}
		s.enter(t.Context(), "1", e)
		if err := turn.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		turn.Release()
		s.want("1 gives up after 2.05s: full false, its turn at 2.05s")
	})
}

// The time that it takes to ask does not slow a line down, and a long delay is not made up for by
// letting many leave at once.
func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for asking, want := range map[time.Duration][]time.Duration{
			3 * time.Millisecond:   {0, 10, 20, 30, 40},
			12 * time.Millisecond:  {0, 12, 24, 36, 48},
			100 * time.Millisecond: {0, 100, 200, 300, 400},
		} {
			var s Shaper
			var all sync.WaitGroup
			began, turns := time.Now(), make([]time.Duration, 5)
			for i := range turns {
				turn, err := s.Enter(Entry{Key: "a", Interval: 10 * time.Millisecond, Most: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				all.Go(func() {
					if err := turn.Wait(t.Context()); err != nil {
						t.Error(err)
					}
					turns[i] = time.Since(began) / time.Millisecond
					time.Sleep(asking)
					turn.Release()
				})
				synctest.Wait()
			}
			all.Wait()
			if !slices.Equal(turns, want) {
				t.Errorf("asking for %v: after %d ms, want %d", asking, turns, want)
			}
		}
	})
}

func TestIntervalsOfAnySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.enter(t.Context(), "0", Entry{Key: "a", Interval: math.MaxInt64, Most: time.Second, From: s.from(time.Second)})
		_, err := s.s.Enter(Entry{Key: "a", Interval: math.MaxInt64, Most: math.MaxInt64, Room: -1, From: s.from(time.Second)})
		if late, ok := errors.AsType[*Late](err); !ok || late.Turn.Sub(s.began) < math.MaxInt64/8 {
			t.Errorf("%v", err)
		}
		s.want("0 after 1s")
		for i := range 3 {
			s.enter(t.Context(), strconv.Itoa(i), Entry{Key: "b", Interval: -1, Most: time.Second, From: s.from(2 * time.Second)})
		}
		s.want("0 after 2s", "1 after 2s", "2 after 2s")
	})
}

// Lines in which nobody waits are bounded, whatever the number of keys.
func TestIdleLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Shaper
		for i := range maxIdle + 100 {
			turn, err := s.Enter(Entry{Key: strconv.Itoa(i), Interval: time.Minute, Most: time.Hour})
			if err != nil || turn.Wait(t.Context()) != nil {
				t.Fatal(err)
			}
			turn.Release()
		}
		if lines, busy, idle := counts(&s); lines != maxIdle || busy != maxIdle || idle != maxIdle {
			t.Errorf("%d lines, %d busy, %d idle, want %d each", lines, busy, idle, maxIdle)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if lines, busy, idle := counts(&s); lines != 0 || busy != 0 || idle != 0 {
			t.Errorf("%d lines, %d busy, %d idle after an interval", lines, busy, idle)
		}
	})
}

func counts(s *Shaper) (lines, busy, idle int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lines), int(s.busy.Load()), s.idle
}
