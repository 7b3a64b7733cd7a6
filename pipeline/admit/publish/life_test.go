package publish

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

// restarts waits as long as a shard that has another memory must, and looks that it grants nothing
// before.
func (r *rig) restarts(p *Publisher, partition int32, key string) {
	r.t.Helper()
	for _, by := range []event.Micros{0, 17 * event.Second, hold} { // 48 s in all are not enough, 49 are
		r.tick(by)
		r.answers()
		if a := r.admit(partition, key, "early"); a.Status != protocol.Doubt {
			r.t.Fatalf("%d s later: %+v", by/event.Second, a)
		}
		if s := p.Stats().Partitions[0]; s.Grants || s.DoubtSince == 0 {
			r.t.Errorf("%+v", s)
		}
	}
	r.tick(3 * event.Second)
	testrun.Eventually(r.t, "all before the opening is settled", func() bool { r.tick(event.Second / 10); return p.Stats().Partitions[0].Grants })
	r.grants(partition, key, "late")
}

func (r *rig) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

// TestRedisLosesItsMemory: it is flushed, or a replica takes over that is behind. What is counted is
// there again at once, but the permits that were granted are not known.
func TestRedisLosesItsMemory(t *testing.T) {
	for what, left := range map[string]func(*memory) *protocol.Memory{
		"all of it":   func(*memory) *protocol.Memory { return &protocol.Memory{} },
		"none of it":  func(m *memory) *protocol.Memory { return m.Copy() },
		"what is new": nil,
	} {
		t.Run(what, func(t *testing.T) {
			log := &testrun.Output{}
			r := newRig(t, 1, 1)
			p, _ := r.start(func(c *Config) { c.Logger = log.Logger() })
			o := r.own(p, 0, nil)
			strict(p, 1)
			o.put(level("uid=1", 1, r.now, 1), version(1))
			r.grants(0, "uid=1", "a")
			var old *protocol.Memory
			r.look(0, func(m *memory) { old = m.Copy() })
			o.put(level("uid=1", 2, r.now, 9, "a"))
			r.reaches(0)
			if left != nil {
				r.look(0, func(m *memory) { old = left(m) })
			}
			r.replace(0, old)
			r.reaches(0)
			r.look(0, func(m *memory) {
				if m.Keys["uid=1"].Level.Seq != 2 {
					t.Errorf("the level is %+v", m.Keys["uid=1"].Level)
				}
			})
			r.restarts(p, 0, "uid=1")
			testrun.Eventually(t, "the rules are there again", func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return len(r.puts) > 1
			})
			if lost := what != "none of it"; (p.Stats().Refills > 0) != lost || log.Has("lost its contents") != lost {
				t.Errorf("%d refills, the log: %s", p.Stats().Refills, log)
			}
		})
	}
}

// TestAnOwnerTakesOver: with the memory that the last one granted for, permits are granted on; with
// another one, only when all that was granted has ended.
func TestAnOwnerTakesOver(t *testing.T) {
	for _, same := range []bool{true, false} {
		t.Run(fmt.Sprint("the same memory ", same), func(t *testing.T) {
			r := newRig(t, 1, 1)
			p, stop := r.start(nil)
			o := r.own(p, 0, nil)
			strict(p, 1)
			r.grants(0, "uid=1", "a")
			testrun.Eventually(t, "the grants are known", func() bool { return o.last() != nil })
			stop()
			next, _ := r.start(nil)
			strict(next, 1)
			if same {
				r.tick(10 * event.Second)
				r.own(next, 0, o.last())
				testrun.Eventually(t, "it may grant", func() bool { return next.Stats().Partitions[0].Grants })
				r.tick(10 * event.Second) // the first one's grants are over
				r.grants(0, "uid=1", "b")
				return
			}
			r.replace(0, &protocol.Memory{})
			r.own(next, 0, o.last())
			r.reaches(0)
			r.restarts(next, 0, "uid=1")
		})
	}
}

func TestGrantsAreRenewed(t *testing.T) {
	r := newRig(t, 1, 1)
	p, _ := r.start(nil)
	o := r.own(p, 0, nil)
	strict(p, 1)
	for i := range 20 {
		r.grants(0, fmt.Sprint("uid=", i), fmt.Sprint(i))
		before := o.last()
		r.tick(5 * event.Second)
		testrun.Eventually(t, "there is another one", func() bool {
			r.tick(event.Second / 10) // an answer from before the tick may have had grants renewed until the same moment
			g := o.last()
			return g != nil && g.Until > before.Until
		})
	}
	o.set(func(o *owner) { o.fenced = true })
	r.tick(10 * event.Second)
	testrun.Eventually(t, "it is said why not", func() bool { s := p.Stats(); return s.Failing && errors.Is(s.LastError, errFenced) })
	r.tick(6 * event.Second)
	testrun.Eventually(t, "it is in doubt", func() bool { return !p.Stats().Partitions[0].Grants })
	if a := r.admit(0, "uid=1", "late"); a.Status != protocol.Doubt {
		t.Errorf("%+v", a)
	}
}

// TestTheClockOfRedisIsWrongForAWhile: it steps by less than a minute, more than once, so that the shard's clock goes
// along each time. It denies while it is far ahead, says so, and grants again as soon as Redis' clock is right.
func TestTheClockOfRedisIsWrongForAWhile(t *testing.T) {
	r := newRig(t, 1, 1)
	p, _ := r.start(nil)
	o := r.own(p, 0, nil)
	strict(p, 1)
	o.put(level("uid=1", 1, r.now, 1), version(1))
	r.grants(0, "uid=1", "a")
	step := func(by event.Micros) {
		r.mu.Lock()
		r.wrong = by * event.Second
		r.mu.Unlock()
		r.reaches(0)
	}
	step(45)
	stats := func() PartitionStats {
		r.tick(event.Second / 10)
		return p.Stats().Partitions[0]
	}
	testrun.Eventually(t, "45 s ahead, which is told, it grants", func() bool {
		s := stats()
		return s.Ahead > 40*time.Second && s.Grants
	})
	step(90)
	testrun.Eventually(t, "90 s ahead it is in doubt, and says why", func() bool {
		s := stats()
		return !s.Grants && s.DoubtSince > 0 && strings.Contains(s.Why, "1m30s ahead")
	})
	step(0)
	testrun.Eventually(t, "it grants again", func() bool { return stats().Grants })
	if s := p.Stats().Partitions[0]; s.Ahead > time.Second {
		t.Errorf("afterwards: %+v", s)
	}
	r.grants(0, "uid=1", "c")
}

// TestAZombiePublishesOn: one that does not know that another process owns the partition does no harm.
func TestAZombiePublishesOn(t *testing.T) {
	r := newRig(t, 1, 1)
	a, _ := r.start(nil)
	b, _ := r.start(nil)
	strict(a, 1)
	strict(b, 1)
	zombie := r.own(a, 0, nil)
	zombie.put(level("uid=0", 1, r.now, 1))
	testrun.Eventually(t, "it may grant", func() bool { return zombie.last() != nil })
	zombie.set(func(o *owner) { o.fenced = true })
	is := r.own(b, 0, zombie.last())
	for i := range 50 {
		first, next, offered := r.write(0, level(fmt.Sprint("uid=", i%7), int64(i+2), r.now, 1, fmt.Sprint(i)))
		b.Offer(0, first, next, offered)
		if i%3 == 0 {
			a.Offer(0, first, next, offered)
		}
		if i%10 == 0 {
			r.tick(event.Second)
		}
	}
	r.reaches(0)
	testrun.Eventually(t, "the new one's grants hold", func() bool { return is.last() != nil && b.Stats().Partitions[0].Grants })
	r.look(0, func(m *memory) {
		if got := m.Keys["uid=0"].Level.Seq; got != 51 {
			t.Errorf("the last level is %d, want 51", got)
		}
		next := int64(0)
		for _, batch := range m.applied {
			if batch.Start != next || batch.Begin {
				t.Fatalf("a batch begins at %d behind %d, or there is a gap", batch.Start, next)
			}
			next = batch.Next
		}
	})
}

// TestLostPermitsAreTold to the owner, each once, and only when all before their hold is counted.
func TestLostPermitsAreTold(t *testing.T) {
	r := newRig(t, 1, 1)
	p, _ := r.start(nil)
	o := r.own(p, 0, nil)
	o.set(func(o *owner) { o.refuses, o.lags = 1, true })
	strict(p, 1)
	r.grants(0, "uid=1", "a")
	r.mu.Lock()
	r.input[0], r.loop[0] = 5, 5
	r.mu.Unlock()
	r.tick(hold + event.Second)
	n := r.count()
	testrun.Eventually(t, "Redis is called", func() bool { return r.count() > n+20 })
	o.set(func(o *owner) {
		if o.refuses != 1 {
			t.Error("it is told of a permit though it has not counted all")
		}
		o.lags = false
	})
	named := func(n int) func() bool {
		return func() bool {
			r.tick(event.Second / 50)
			o.mu.Lock()
			defer o.mu.Unlock()
			return len(o.lost) == n
		}
	}
	testrun.Eventually(t, "it is told, the second time", named(1))
	n = r.count()
	testrun.Eventually(t, "Redis names it again", func() bool { return r.count() > n+20 })
	if !named(1)() || o.lost[0].ID != "a" || o.lost[0].Key != "uid=1" {
		t.Errorf("%+v", o.lost)
	}
	if s := p.Stats(); s.Lost["day"] != 1 || s.Partitions[0].Unsettled > time.Hour {
		t.Errorf("%+v", s)
	}
	o.put(level("uid=1", 1, r.now, 1, "a"))
	r.reaches(0)
	r.look(0, func(m *memory) {
		if len(m.Keys["uid=1"].Permits) > 0 {
			t.Error("it is not settled")
		}
	})
}

// TestManyLostPermits are not looked through at each call, and are forgotten all the same.
func TestManyLostPermits(t *testing.T) {
	m := marks{told: map[lostID]event.Micros{}}
	looks, crowd := 0, 0
	for i := range 10 * maxTold {
		m.told[lostID{"k", fmt.Sprint(i)}] = event.Minute
		if m.forget(2 * event.Minute); m.crowd != crowd {
			looks, crowd = looks+1, m.crowd
		}
	}
	if len(m.told) != 10*maxTold || looks > 5 {
		t.Errorf("%d are known after %d looks", len(m.told), looks)
	}
	for i := range m.crowd {
		m.told[lostID{"k", fmt.Sprint("late", i)}] = event.Hour
	}
	if m.forget(event.Hour); len(m.told) != crowd {
		t.Errorf("%d are left, want the %d that were named lately", len(m.told), crowd)
	}
}

// TestAllPartitionsReportToAllShards: nothing is settled anywhere until each partition has forwarded.
func TestAllPartitionsReportToAllShards(t *testing.T) {
	r := newRig(t, 3, 2)
	p, _ := r.start(func(c *Config) { c.Partitions = 3 })
	q, _ := r.start(func(c *Config) { c.Partitions = 3 })
	strict(p, 1)
	strict(q, 1)
	r.own(p, 0, nil)
	r.own(p, 1, nil)
	n := r.count()
	testrun.Eventually(t, "Redis is called", func() bool { return r.count() > n+40 })
	if r.settled(0) > 0 || r.settled(1) > 0 {
		t.Error("something is settled without partition 2")
	}
	last := r.own(q, 2, nil)
	for partition := range int32(3) {
		testrun.Eventually(t, "all are settled", func() bool { return r.settled(partition) > 0 })
	}
	last.set(func(o *owner) { o.lags = true })
	r.mu.Lock()
	r.input[2] = 9
	r.mu.Unlock()
	r.tick(event.Minute)
	now := r.time()
	n = r.count()
	testrun.Eventually(t, "Redis is called", func() bool { return r.count() > n+60 })
	if r.settled(0) >= now || r.settled(1) >= now {
		t.Error("all is settled though partition 2 has not forwarded all")
	}
	last.set(func(o *owner) { o.lags = false })
	for partition := range int32(3) {
		testrun.Eventually(t, "all are settled again", func() bool { r.tick(event.Second / 50); return r.settled(partition) >= now })
	}
}

// TestAnEndThatIsWantedAnewIsReadAgain: the first one is that of an earlier moment.
func TestAnEndThatIsWantedAnewIsReadAgain(t *testing.T) {
	r := newRig(t, 1, 1)
	p, stop := r.start(nil)
	stop()
	w := newWorker(p, 0, &owner{r: r}, 0)
	var told []int64
	ends := make(chan int64)
	w.marks.input.read = func(context.Context, int32) (int64, error) { return <-ends, nil }
	w.marks.input.tell = func(end int64) { told = append(told, end) }
	w.marks.input.want()
	w.marks.next(t.Context())
	w.marks.input.want() // Redis has another memory
	ends <- 5
	(<-w.marks.done)()
	if len(told) > 0 {
		t.Fatalf("the end of an earlier moment is told: %v", told)
	}
	w.marks.input.began = time.Time{}
	w.marks.next(t.Context())
	ends <- 7
	(<-w.marks.done)()
	if fmt.Sprint(told) != "[7]" {
		t.Errorf("told %v, want the second end", told)
	}
}

// TestAnythingFails: calls, answers, memories and owners, in random order. Whatever is applied is what
// the topic has, and in the end all is there and permits are granted.
func TestAnythingFails(t *testing.T) {
	seed := testrun.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	r := newRig(t, 2, 2)
	chance := func(part float64) func(int) error {
		own := rand.New(rand.NewPCG(seed, uint64(part*100)))
		return func(int) error { // under the rig's lock
			if own.Float64() < part {
				return errors.New("i/o timeout")
			}
			return nil
		}
	}
	r.fails, r.mutes = chance(0.1), chance(0.11)
	change := func(c *Config) { c.Partitions, c.BatchSize, c.Buffer = 2, 5, 3000 }
	var owners [2]*owner
	takeOver := func(partition int32) {
		var last *protocol.Grants
		if o := owners[partition]; o != nil {
			o.set(func(o *owner) { o.fenced = true })
			if last = o.last(); last == nil {
				last = o.took
			}
		}
		p, _ := r.start(change)
		strict(p, 1)
		owners[partition] = r.own(p, partition, last)
	}
	takeOver(0)
	takeOver(1)
	seqs := map[string]int64{}
	for i := range 600 {
		partition := int32(rng.IntN(2))
		key := fmt.Sprint("uid=", partition, ".", rng.IntN(20))
		seqs[key]++
		owners[partition].put(nil, level(key, seqs[key], r.now, 1, fmt.Sprint("p", i)))
		switch n := rng.IntN(100); {
		case n < 2:
			takeOver(partition)
		case n < 4:
			r.replace(int(partition), &protocol.Memory{})
		case n < 6:
			var m *protocol.Memory
			r.look(int(partition), func(is *memory) { m = is.Copy() })
			r.replace(int(partition), m)
		case n < 10:
			r.tick(event.Second)
		}
	}
	for partition := range int32(2) {
		r.reaches(partition)
		r.look(int(partition), func(m *memory) {
			for key, k := range m.Keys {
				if k.Level != nil && k.Level.Seq != seqs[key] {
					t.Errorf("%s: level %d, want %d", key, k.Level.Seq, seqs[key])
				}
			}
			if len(m.Keys) != 20 {
				t.Errorf("%d keys, want 20", len(m.Keys))
			}
		})
	}
	r.mu.Lock()
	r.fails, r.mutes = nil, nil
	r.mu.Unlock()
	for partition := range int32(2) {
		testrun.Eventually(t, "permits are granted", func() bool {
			r.tick(event.Second / 5)
			return r.admit(partition, fmt.Sprint("uid=", partition, ".1"), "p").Status == protocol.Granted
		})
	}
}
