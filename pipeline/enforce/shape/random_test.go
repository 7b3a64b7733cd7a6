package shape

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// crowd is many who come, wait, are put off, give up and leave, at random.
type crowd struct {
	t *testing.T
	s Shaper

	mu   sync.Mutex
	keys map[string]*seen
	left map[string]int // how many, by how
}

// seen is a key's state from outside.
type seen struct {
	waiting []int     // in the order in which they came
	last    time.Time // when the last one was let through
}

const crowdEvery = 20 * time.Millisecond

// Whatever happens, nobody overtakes, those who leave keep their distance, nobody waits for longer
// than promised, and nothing is left at the end.
func TestACrowd(t *testing.T) {
	for range 5 {
		seed := testrun.Seed(t)
		synctest.Test(t, func(t *testing.T) {
			c := &crowd{t: t, keys: map[string]*seen{}, left: map[string]int{}}
			r := rand.New(rand.NewPCG(seed, 1))
			var all sync.WaitGroup
			for i := range 2000 {
				own := rand.New(rand.NewPCG(seed, uint64(i)))
				all.Go(func() { c.one(i, own) })
				if r.IntN(3) == 0 {
					time.Sleep(time.Duration(r.IntN(int(crowdEvery / 4))))
				}
				synctest.Wait()
			}
			all.Wait()
			time.Sleep(crowdEvery)
			synctest.Wait()
			if lines, busy, idle := counts(&c.s); lines != 0 || busy != 0 || idle != 0 {
				t.Errorf("%d lines, %d busy and %d idle are left", lines, busy, idle)
			}
			for _, how := range []string{"released", "late", "gone", "full", "denied"} {
				if c.left[how] == 0 {
					t.Errorf("none was %s: the test proves little", how)
				}
			}
		})
	}
}

// one comes, and leaves somehow.
func (c *crowd) one(id int, r *rand.Rand) {
	key := strconv.Itoa(r.IntN(5))
	// At least an interval: after one who would not wait that long, no distance is kept.
	began, most := time.Now(), crowdEvery+time.Duration(r.IntN(int(15*crowdEvery)))
	c.mu.Lock() // so that the order is known
	turn, err := c.s.Enter(Entry{Key: key, From: began.Add(time.Duration(r.IntN(int(crowdEvery)))), Interval: crowdEvery, Most: most, Room: 10})
	if err == nil {
		c.seenOf(key).waiting = append(c.seenOf(key).waiting, id)
	}
	c.mu.Unlock()
	if late, ok := errors.AsType[*Late](err); ok {
		if !late.Full && late.Turn.Sub(began) <= most {
			c.t.Errorf("sent away although its turn is in %v of %v", late.Turn.Sub(began), most)
		}
		c.out(key, id, map[bool]string{false: "late", true: "full"}[late.Full])
		return
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	if r.IntN(8) == 0 {
		defer time.AfterFunc(time.Duration(r.IntN(int(10*crowdEvery))), cancel).Stop()
	}
	how := c.wait(ctx, turn, key, id, r)
	if waited := time.Since(began); waited > most+grace {
		c.t.Errorf("waited for %v of %v", waited, most)
	}
	if how != "released" {
		c.out(key, id, how)
		turn.Leave()
	}
}

func (c *crowd) wait(ctx context.Context, turn *Turn, key string, id int, r *rand.Rand) string {
	for {
		err := turn.Wait(ctx)
		if _, late := errors.AsType[*Late](err); late {
			return "late"
		}
		if err != nil {
			return "gone"
		}
		switch r.IntN(10) {
		case 0:
			return "denied"
		case 1:
			if turn.Postpone(time.Now().Add(time.Duration(r.IntN(int(3*crowdEvery))))) != nil {
				return "late"
			}
		default:
			c.release(turn, key, id)
			return "released"
		}
	}
}

func (c *crowd) release(turn *Turn, key string, id int) {
	c.out(key, id, "released")
	turn.Release()
}

// out is one that leaves.
func (c *crowd) out(key string, id int, how string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, now := c.seenOf(key), time.Now()
	if how == "released" {
		if s.waiting[0] != id {
			c.t.Errorf("%d overtook %d", id, s.waiting[0])
		}
		if d := now.Sub(s.last); d < crowdEvery && !s.last.IsZero() {
			c.t.Errorf("two left %v after each other", d)
		}
		s.last = now
	}
	if i := slices.Index(s.waiting, id); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	c.left[how]++
}

func (c *crowd) seenOf(key string) *seen {
	if c.keys[key] == nil {
		c.keys[key] = &seen{}
	}
	return c.keys[key]
}
