package publish

import (
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

const long = 5 * hold

// answers waits for several answers of Redis, and for what comes of them.
func (r *rig) answers() {
	r.t.Helper()
	n := r.count()
	testrun.Eventually(r.t, "Redis is called", func() bool { return r.count() > n+8 })
}

// opens expects permits under limits with a hold, of a memory that is opened step by step.
func (r *rig) opens(id string, hold event.Micros) {
	r.t.Helper()
	testrun.Eventually(r.t, "a permit with a hold of "+hold.Duration().String(), func() bool {
		r.tick(event.Second / 10) // until what was counted by then is settled
		return r.admitFor(0, "uid=1", id, hold).Status == protocol.Granted
	})
}

func (r *rig) stays(what, id string, hold event.Micros) {
	r.t.Helper()
	r.answers()
	if a := r.admitFor(0, "uid=1", id, hold); a.Status != protocol.Doubt {
		r.t.Fatalf("%s: %+v, want a doubt", what, a)
	}
}

// known waits until the shard goes by a version.
func (o *owner) known(version uint64) {
	o.r.t.Helper()
	testrun.Eventually(o.r.t, "it is noted whose permits are out", func() bool {
		o.r.tick(event.Second / 10)
		g := o.last()
		return g != nil && g.HoldsOf == version
	})
}

// TestALongHoldIsNotTheOutageOfAll: with one rule that had a hold of 150 s, all strict rules denied for 170 s when
// Redis had lost its memory.
func TestALongHoldIsNotTheOutageOfAll(t *testing.T) {
	r := newRig(t, 1, 1)
	p, stop := r.start(nil)
	o := r.own(p, 0, nil)
	p.Use(1, []byte("rules"), []event.Micros{long, hold})
	o.put(version(1))
	r.grants(0, "uid=1", "a")
	o.known(1)
	r.replace(0, &protocol.Memory{})
	r.reaches(0)
	r.tick(17*event.Second + hold)
	r.stays("too early", "b", hold)
	r.opens("c", hold)
	r.stays("permits with a long hold may be out", "d", long)
	if s := p.Stats().Partitions[0]; s.Grants || !strings.Contains(s.Why, "limits with a hold of at most 30s are open") {
		t.Errorf("%+v", s)
	}

	// Who takes over now begins again: what was granted lately is known, what another memory granted is not.
	stop()
	next, _ := r.start(nil)
	next.Use(1, []byte("rules"), []event.Micros{hold, long})
	took := o.last()
	o = r.own(next, 0, &protocol.Grants{HoldsOf: took.HoldsOf, Longest: took.Longest}) // as it is in the changelog
	r.reaches(0)
	r.tick(16 * event.Second) // what the first one said is over
	r.stays("behind a takeover", "e", hold)
	r.tick(3*event.Second + hold)
	r.opens("f", hold)
	r.stays("permits with a long hold may be out", "g", long)
	r.tick(long - hold)
	r.opens("h", long)
	if g := o.last(); g.Hold != 0 {
		t.Errorf("%+v", g)
	}
}

// TestAHoldThatWasLongerLately: permits that were granted before a reload end when they would have ended without it.
func TestAHoldThatWasLongerLately(t *testing.T) {
	r := newRig(t, 1, 1)
	p, _ := r.start(nil)
	o := r.own(p, 0, nil)
	p.Use(1, []byte("rules"), []event.Micros{long})
	o.put(version(1))
	if a := r.admitFor(0, "uid=1", "a", long); a.Status == protocol.Doubt {
		r.opens("a", long)
	}
	o.known(1)
	p.Use(2, []byte("other rules"), []event.Micros{hold, 2 * hold})
	o.put(version(2))
	r.reaches(0)
	r.answers()
	r.replace(0, &protocol.Memory{})
	r.reaches(0)
	r.tick(17*event.Second + 2*hold)
	r.stays("permits by the rules before may be out", "b", hold)
	r.tick(long - 2*hold)
	r.stays("a second too early", "c", hold)
	r.opens("d", hold)
	r.opens("e", 2*hold)
	o.known(2) // all permits by the rules before are over
}

// TestRulesOfAnotherProcessMayHaveHadLongerHolds: who takes over knows which rules were in force for long enough.
func TestRulesOfAnotherProcessMayHaveHadLongerHolds(t *testing.T) {
	for _, took := range []protocol.Grants{
		{Run: "r", Life: "l", HoldsOf: 1, Longest: long},
		{Run: "r", Life: "l", HoldsOf: 7, Longest: long},
		{Run: "r", Life: "l"}, // of a program that says nothing of them
	} {
		r := newRig(t, 1, 1)
		p, _ := r.start(nil)
		o := r.own(p, 0, &took)
		p.Use(1, []byte("rules"), []event.Micros{hold, long})
		o.put(version(1))
		r.reaches(0)
		r.answers()
		r.tick(19*event.Second + hold)
		if took.HoldsOf == 1 {
			r.opens("a", hold)
		}
		r.tick(event.Second)
		r.answers()
		if a := r.admitFor(0, "uid=1", "b", hold); (a.Status == protocol.Granted) != (took.HoldsOf == 1) {
			t.Errorf("behind %+v: %+v", took, a)
		}
		r.tick(long)
		r.opens("c", long)
	}
}
