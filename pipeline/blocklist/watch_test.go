package blocklist

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// both hands everything to two sinks.
type both struct{ a, b Sink }

func (w both) Replace(shard int, all []verdict.Verdict) {
	w.a.Replace(shard, all)
	w.b.Replace(shard, all)
}

func (w both) Apply(shard int, changes []verdict.Verdict) {
	w.a.Apply(shard, changes)
	w.b.Apply(shard, changes)
}

func (w both) Remove(shard int, key []byte) {
	w.a.Remove(shard, key)
	w.b.Remove(shard, key)
}

func (w both) Heartbeat(shard int, applied event.Micros) {
	w.a.Heartbeat(shard, applied)
	w.b.Heartbeat(shard, applied)
}

// watch asks an enforcer's table about users all the time, and checks that no user is let go before
// the until of a block that the table had, and that none is denied by one that has ended.
type watch struct {
	t     testing.TB
	table *enforce.Table

	mu    sync.Mutex
	users map[string]*watchedUser
	names []string

	checks, denied int
	longest        time.Duration // that one was denied after its block's end
}

// watchedUser lists the states that a user may be in.
type watchedUser struct {
	published []event.Micros // the untils of the blocks, in order; 0 for an end
	held      event.Micros   // until when the table must deny; 0 when it need not
}

func newWatch(t testing.TB) *watch {
	table, err := enforce.NewTable(enforce.Config{Shards: stageShards, Sweep: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{t: t, table: table, users: map[string]*watchedUser{}}
	testrun.Start(t, table.Run)
	return w
}

// publish is told of what will be published, before it is.
func (w *watch) publish(uid string, v verdict.Verdict, ends bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.users[uid]
	if u == nil {
		u = &watchedUser{}
		w.users[uid], w.names = u, append(w.names, uid)
	}
	until := v.Until
	if ends {
		until = 0
	}
	u.published = append(u.published, until)
	u.held = min(u.held, until) // it may take the place of what is held at any moment
}

// run asks until ctx ends.
func (w *watch) run(ctx context.Context) error {
	r := rand.New(rand.NewPCG(1, 2))
	for ctx.Err() == nil {
		for range 200 {
			w.ask(r)
		}
		retry.Sleep(ctx, time.Millisecond)
	}
	return nil
}

func (w *watch) ask(r *rand.Rand) {
	w.mu.Lock() // nothing is published meanwhile
	defer w.mu.Unlock()
	if len(w.names) == 0 {
		return
	}
	uid := w.names[r.IntN(len(w.names))]
	u := w.users[uid]
	d := w.table.Check("any", uid)
	now, at, until := event.FromTime(time.Now()), event.FromTime(d.At()), event.FromTime(d.Until())
	w.checks++
	switch {
	case d.Allowed && now < u.held:
		w.t.Errorf("%s is let go %v before its block's end", uid, (u.held - now).Duration())
		u.held = 0
	case d.Allowed:
	case !slices.Contains(u.published, until):
		w.t.Errorf("%s is denied until %v, which was not published", uid, until)
	default:
		w.denied++
		w.longest = max(w.longest, (now - until).Duration())
		if at >= until {
			w.t.Errorf("%s is denied %v after its block's end", uid, (at - until).Duration())
		}
		u.held = slices.Min(u.published[slices.Index(u.published, until):])
	}
}

func (w *watch) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("%d checks of %d users, %d denied, at most %v after a block's end", w.checks, len(w.names), w.denied, w.longest)
}
