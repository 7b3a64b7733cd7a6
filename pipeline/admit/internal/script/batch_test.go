package script

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/internal/failure"
)

// granting returns a rig on which permits are granted for an hour.
func granting(t *testing.T, client *redis.Client) *rig {
	t.Helper()
	r := newRig(t, client, 1)
	r.process()
	first, err := r.shards.Apply(t.Context(), &protocol.Batch{Of: 2, Next: 1, Beat: r.now, Records: []protocol.Record{{Version: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	if a, err := r.shards.Apply(t.Context(), &protocol.Batch{Of: 2, Start: 1, Next: 2, Beat: r.now, Records: []protocol.Record{
		{Grants: &protocol.Grants{Run: r.run, Life: first.Life, Until: r.now + event.Hour}},
	}}); err != nil || !a.OK {
		t.Fatal(a, err)
	}
	return r
}

func (r *rig) one(key, id string) protocol.Ask {
	w := limits[0]
	w.Amount = event.One
	return protocol.Ask{Key: key, IDs: []string{id}, Before: r.now + event.Second, Version: 1, Wants: []protocol.Want{w}}
}

// calls counts how often a script is called.
type calls struct{ n atomic.Int64 }

func (c *calls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *calls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			c.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (c *calls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestQuestionsGoTogether has many ask at once: each has its own answer, and they share calls.
func TestQuestionsGoTogether(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		r := granting(t, client)
		count := &calls{}
		client.AddHook(count)
		const askers, times, keys = 40, 25, 50
		granted := make([]atomic.Int64, keys)
		var asking sync.WaitGroup
		for a := range askers {
			asking.Go(func() {
				for i := range times {
					k := (a*7 + i) % keys
					q := r.one(fmt.Sprint("key", k), fmt.Sprint(a, "-", i))
					switch answer, err := r.shards.Admit(t.Context(), &q); {
					case err != nil:
						t.Error(err)
					case answer.Status == protocol.Granted && (len(answer.IDs) != 1 || answer.IDs[0] != q.IDs[0]):
						t.Errorf("%q got the answer %+v", q.IDs, answer)
					case answer.Status == protocol.Granted:
						granted[k].Add(1)
					}
				}
			})
		}
		asking.Wait()
		for k := range granted {
			if n := granted[k].Load(); n != 8 { // each was asked for 20 times
				t.Errorf("%d permits for key%d, want 8", n, k)
			}
		}
		if n := count.n.Load(); n > askers*times/2 {
			t.Errorf("%d calls for %d questions", n, askers*times)
		}
	})
}

// TestAKeyThatIsBrokenIsNoOthersMatter asks for a key whose value is no key, among others.
func TestAKeyThatIsBrokenIsNoOthersMatter(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		r := granting(t, client)
		if err := client.Set(t.Context(), r.shards.meta(0)+":k:broken", "[]", 0).Err(); err != nil {
			t.Fatal(err)
		}
		var batch []*asked
		for i, key := range []string{"a", "broken", "b", "broken", "c"} {
			batch = append(batch, &asked{question: question{ask: r.one(key, fmt.Sprint("id", i))}})
		}
		r.shards.askAll(t.Context(), 0, batch)
		for _, one := range batch {
			switch {
			case one.question.ask.Key == "broken":
				if answered := redis.Error(nil); !errors.As(one.err, &answered) {
					t.Errorf("a broken key: %+v, %v, want Redis' error", one.answer, one.err)
				}
			case one.err != nil || one.answer.Status != protocol.Granted:
				t.Errorf("%s: %+v, %v", one.question.ask.Key, one.answer, one.err)
			}
		}
	})
}

// TestARedisThatIsFull refuses each question that would write. The connection stays in step with its
// answers, as its clients know these errors by types of their own.
func TestARedisThatIsFull(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: servers.StartRedis(t).Addr(), PoolSize: 1, MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	r := granting(t, client)
	ask := func(full bool, keys ...string) {
		t.Helper()
		if err := client.ConfigSet(t.Context(), "maxmemory", map[bool]string{true: "1", false: "0"}[full]).Err(); err != nil {
			t.Fatal(err)
		}
		connections := client.PoolStats().Misses
		var batch []*asked
		for _, key := range keys {
			q := r.one(key, "of "+key)
			q.Wants[0].Threshold = 1
			if key != "denied" {
				q.Wants[0].Threshold = event.One
			}
			batch = append(batch, &asked{question: question{ask: q}})
		}
		r.shards.askAll(t.Context(), 0, batch)
		for _, one := range batch {
			denied := one.question.ask.Key == "denied"
			switch {
			case full && !denied:
				if failure.Of(one.err) != failure.Memory {
					t.Errorf("%s: %+v, %v, want that its memory is full", one.question.ask.Key, one.answer, one.err)
				}
			case one.err != nil || (one.answer.Status == protocol.Granted) == denied:
				t.Errorf("%s, full %t: %+v, %v", one.question.ask.Key, full, one.answer, one.err)
			}
		}
		if got := client.PoolStats().Misses; got != connections {
			t.Errorf("full %t: it has connected again", full)
		}
	}
	ask(false, "a", "denied", "b")
	ask(true, "c", "denied", "d")
	ask(true, "e")
	ask(false, "c", "denied", "d")
}

// slowLane is a lane whose calls end when the test says.
func slowLane(taken func(batch []*asked)) *lane {
	return &lane{ask: func(_ context.Context, batch []*asked) { taken(batch) }}
}

// TestCallsThatHangDoNotHoldTheOthers: while all calls hang, another one begins.
func TestCallsThatHangDoNotHoldTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		var began atomic.Int64
		l := slowLane(func([]*asked) {
			if began.Add(1) <= callsAtOnce {
				<-hang
			}
		})
		ask := func() (time.Duration, error) {
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			from := time.Now()
			_, err := l.admit(ctx, &protocol.Ask{IDs: []string{"id"}})
			return time.Since(from), err
		}
		for range callsAtOnce {
			go func() { _, _ = ask() }()
			synctest.Wait()
		}
		waits := make(chan time.Duration)
		go func() {
			took, err := ask()
			if err != nil {
				t.Error(err)
			}
			waits <- took
		}()
		synctest.Wait()
		if n := began.Load(); n != callsAtOnce {
			t.Errorf("%d calls at once", n)
		}
		time.Sleep(hangsAfter)
		if took, err := ask(); took > 0 || err != nil {
			t.Errorf("while calls hang, a question takes %v: %v", took, err)
		}
		if took := <-waits; took != hangsAfter {
			t.Errorf("one that waited took %v", took)
		}
		close(hang)
	})
}

// TestWhatNobodyWaitsForIsNotAsked: the question of a request that ended while it waited is dropped.
func TestWhatNobodyWaitsForIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		var mu sync.Mutex
		var sent []string
		l := slowLane(func(batch []*asked) {
			mu.Lock()
			for _, one := range batch {
				sent = append(sent, one.question.ask.Key)
			}
			mu.Unlock()
			<-hang
		})
		gone, leave := context.WithCancel(t.Context())
		var asking sync.WaitGroup
		for i := range callsAtOnce + 2 {
			ctx, key := t.Context(), "asked"
			if i == callsAtOnce {
				ctx, key = gone, "gone"
			}
			asking.Go(func() {
				_, err := l.admit(ctx, &protocol.Ask{Key: key, IDs: []string{"id"}})
				if (key == "gone") != errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", key, err)
				}
			})
			synctest.Wait()
		}
		leave()
		synctest.Wait()
		close(hang)
		asking.Wait()
		if want := callsAtOnce + 1; len(sent) != want || strings.Contains(strings.Join(sent, ","), "gone") {
			t.Errorf("sent %q", sent)
		}
		synctest.Wait()
		if l.calls != 0 || len(l.waiting) > 0 {
			t.Errorf("%d calls are under way at the end, %d wait", l.calls, len(l.waiting))
		}
	})
}

// TestACallIsNoLongerThanRedisMayWait: what waits for long goes in several calls.
func TestACallIsNoLongerThanRedisMayWait(t *testing.T) {
	l := &lane{calls: 1}
	many := make([]string, maxAskedIDs-1)
	ask := func(key string, ids ...string) {
		l.waiting = append(l.waiting, &asked{ctx: t.Context(), question: question{ask: protocol.Ask{Key: key, IDs: ids}}})
	}
	ask("many", many...)
	ask("a", "1")
	ask("b", "2", "3")
	ask("more", append(many, "4", "5")...)
	for i := range maxQuestions + 1 {
		ask("hot", "h")
		ask(fmt.Sprint("cold", i), "c")
	}
	// What does not fit lets others pass, of which the first are taken first.
	for i, want := range []string{"many a", "b", "more"} {
		var got []string
		for _, one := range l.take() {
			got = append(got, one.question.ask.Key)
		}
		if i == 1 { // and what has room beside it
			if len(got) != maxQuestions || got[0] != "b" || strings.Count(strings.Join(got, " "), "hot") != maxOfOneKey {
				t.Errorf("call 1: %q", got)
			}
			continue
		}
		if strings.Join(got, " ") != want {
			t.Errorf("call %d: %q, want %q", i, got, want)
		}
	}
	for len(l.waiting) > 0 {
		before := len(l.waiting)
		batch := l.take()
		if n := len(batch); n == 0 || n > maxQuestions || before-len(l.waiting) != n {
			t.Fatalf("%d questions of %d, and %d are left", n, before, len(l.waiting))
		}
	}
	if batch := l.take(); len(batch) > 0 || l.calls != 0 {
		t.Errorf("%d questions, and %d calls are under way at the end", len(batch), l.calls)
	}
}
