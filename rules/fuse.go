package rules

import (
	"math/bits"

	"github.com/tallygate/tallygate/event"
)

// fuseLeast is the number of keys from which a rule's share counts.
const fuseLeast = 20

// Fuses keep, for one partition, count of the keys that each rule with a fuse blocks, and put a
// rule that would block too many into shadow mode, for good: a set that is loaded anew has new
// ones. A nil *Fuses never does. It is the owner's: only its Stepper calls it while it steps.
type Fuses struct {
	rules []fuse // by Rule.Index
}

type fuse struct {
	blown bool
	until map[string]event.Micros // the keys that are blocked, and until when
}

// NewFuses returns the fuses of a set, all whole; nil when no rule has one.
func (s *Set) NewFuses() *Fuses {
	var f *Fuses
	for _, r := range s.Rules {
		if r.Fuse > 0 && f == nil {
			f = &Fuses{rules: make([]fuse, len(s.Rules))}
		}
	}
	return f
}

// Blown reports whether a rule's fuse has blown.
func (f *Fuses) Blown(r *Rule) bool {
	return f != nil && r.Index < len(f.rules) && f.rules[r.Index].blown
}

// Blow blows a rule's fuse, as an owner before had seen it.
func (f *Fuses) Blow(r *Rule) {
	if f != nil && r.Index < len(f.rules) {
		f.rules[r.Index].blown = true
	}
}

// Note tells of a key that a rule blocks until some time, as its state says: after a takeover, of
// all.
func (f *Fuses) Note(r *Rule, key []byte, until event.Micros) {
	if f == nil || r.Fuse == 0 {
		return
	}
	u := &f.rules[r.Index]
	if u.until == nil {
		u.until = map[string]event.Micros{}
	}
	u.until[string(key)] = max(u.until[string(key)], until)
}

// forget tells of a key that a limit blocks no more. A candidate, which has blocked nobody, does not.
func (f *Fuses) forget(l *Limit, key []byte) {
	if r := l.Rule; f != nil && r.Fuse > 0 && !l.Shadow {
		delete(f.rules[r.Index].until, string(key))
	}
}

// blows notes a block, and decides whether it is one too many: with it the rule would block more
// than its share of the active keys, and at least fuseLeast.
func (f *Fuses) blows(r *Rule, key []byte, until, now event.Micros, active int) bool {
	if f == nil || r.Fuse == 0 || f.rules[r.Index].blown {
		return false
	}
	f.Note(r, key, until)
	u := &f.rules[r.Index]
	if active <= 0 || len(u.until) < fuseLeast || !moreThan(len(u.until), r.Fuse, active) {
		return false
	}
	for key, until := range u.until { // only what is in force counts
		if until <= now {
			delete(u.until, key)
		}
	}
	u.blown = len(u.until) >= fuseLeast && moreThan(len(u.until), r.Fuse, active)
	return u.blown
}

// moreThan reports whether n is more than a share of all.
func moreThan(n int, share event.Decimal, all int) bool {
	aHi, aLo := bits.Mul64(uint64(n), uint64(event.One))
	bHi, bLo := bits.Mul64(uint64(all), uint64(share))
	return aHi > bHi || aHi == bHi && aLo > bLo
}
