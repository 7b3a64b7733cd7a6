package rules

import (
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
)

// Step counts one event for one key: it reads the key's state (length 0: a new key),
// appends the state with the event in it to dst, and says what changed. dst and state must not
// overlap; state must have passed Set.Check, or be what a Step returned.
//
// Nothing is allocated but room in dst and what changes, and limits with more than a window, need.
func (p *Stepper) Step(dst, state []byte, in Input) ([]byte, Result) {
	p.begin()
	var old keystate.Key
	p.readInto(&old, state)
	in.At = min(max(in.At, event.MinTime), event.MaxTime)
	latest := max(old.Latest, in.At)
	if onlyTells(in.Hits) {
		if in.Permit == "" {
			return p.tell(dst, state, &old, &in)
		}
		in.ID = "" // of what did not happen
	}
	var id, permit uint64
	if in.ID != "" {
		id = xxhash.Sum64String(in.ID)
		if p.ids.Seen(&old.IDs, id, old.Latest, latest) {
			return append(dst, state...), Result{Repeat: true, SpentAt: p.spent(old)}
		}
	}
	if in.Permit != "" {
		permit = xxhash.Sum64String(in.Permit)
		lost := p.ids.Seen(&old.IDs, permit^lostMark, old.Latest, latest)
		if lost && in.Lost || p.ids.Seen(&old.IDs, permit, old.Latest, latest) {
			return append(dst, state...), Result{Repeat: true, SpentAt: p.spent(old)}
		}
		switch {
		case in.Lost:
			permit ^= lostMark
		case lost:
			p.hits = notStrict(p.hits[:0], in.Hits)
			in.Hits = p.hits
		}
	}
	if len(in.Hits) > 0 && in.Hits[0].Refund {
		if known, takes := p.refunds(old, in.Hits, in.At); !takes {
			return append(dst, state...), Result{Unknown: !known, SpentAt: p.spent(old)}
		}
	}
	dst = keystate.AppendHeader(dst, latest)
	ids := len(dst)
	dst = p.ids.AppendTo(dst, old.IDs, old.Latest, latest, id, in.ID != "")
	if in.Permit != "" && (in.ID == "" || permit != id) {
		dst = p.ids.AppendMore(dst, ids, latest, permit)
	}
	res := Result{SpentAt: max(latest, p.ids.Spent(&old.IDs, old.Latest))}
	if (in.ID != "" || in.Permit != "") && p.ids.Most > 0 {
		res.SpentAt = keystate.Later(latest, p.ids.Age)
	}
	dst = p.stepSections(dst, &old, &in, latest, &res)
	p.sortChanges()
	res.Changes, res.Moves = p.changes, p.moves
	return dst, res
}

// lostMark tells the hash of a permit that was counted as lost from that of one whose event came.
const lostMark = 0x9e3779b97f4a7c15

// notStrict appends the hits under limits that did not count a permit by itself.
func notStrict(dst, hits []Hit) []Hit {
	for _, h := range hits {
		if !h.Limit.Strict {
			dst = append(dst, h)
		}
	}
	return dst
}

// at is the event's time for a limit.
func (in *Input) at(l *Limit) event.Micros {
	if in.PermitAt != 0 && l.Strict {
		return in.PermitAt
	}
	return in.At
}

// stepSections appends the old sections, those that were hit with the event in them, and
// then new ones for the limits that the key meets for the first time.
func (p *Stepper) stepSections(dst []byte, old *keystate.Key, in *Input, latest event.Micros, res *Result) []byte {
	p.seen = append(p.seen[:0], make([]bool, len(in.Hits))...)
	next := 0 // most likely: sections and hits tend to be in one order
	for sections := old.Sections; len(sections) > 0; {
		sec, rest, ok := keystate.Cut(sections)
		if !ok {
			break // not reached with a checked state
		}
		sections = rest
		sec.Version = old.Version
		i := next
		if i >= len(in.Hits) || in.Hits[i].Limit.Hash != sec.Hash() {
			i = hitOf(in.Hits, sec.Hash(), next)
		}
		var l *Limit
		if i < 0 {
			hash := sec.Hash()
			if l, sec = p.limitOfSection(sec); sec.Hash() != hash {
				i = hitOf(in.Hits, sec.Hash(), next)
			}
		}
		if i >= 0 {
			p.seen[i], next = true, i+1
			dst = p.hit(dst, sec, in, i, latest, res)
			continue
		}
		dst = p.keep(dst, sec, l, in.Key, latest, res)
	}
	for i, seen := range p.seen {
		if !seen {
			dst = p.hit(dst, p.begun(in.Hits[i].Limit, old), in, i, latest, res)
		}
	}
	return dst
}

// keep appends a section of a limit that was not hit. One that no limit of the set has, l is nil
// then, is dropped; what it had in force is cleared.
func (p *Stepper) keep(dst []byte, sec keystate.Section, l *Limit, key []byte, latest event.Micros, res *Result) []byte {
	if sec.Hash() == keystate.KeyHash {
		return p.keepOwn(dst, sec, latest, res)
	}
	switch {
	case l == nil:
		p.retire(sec, key, latest)
		return dst
	case sec.HasExtra() && sec.Version < keystate.Version:
		window := p.take(sec)
		res.outlive(l, sec, latest)
		return p.appendSection(dst, l.Hash, window)
	}
	res.outlive(l, sec, latest)
	return append(dst, sec.Raw...)
}

// growth is about the most that a window's state grows by at one event: with that much room no
// window needs memory of its own.
const growth = 64

// hit appends a section, empty for a limit that the key had not met, with the i-th hit's amount
// added to its window, and judges it. The window is stepped where it is appended; where there is
// nothing besides it, and nothing to judge, that is all.
func (p *Stepper) hit(dst []byte, sec keystate.Section, in *Input, i int, latest event.Micros, res *Result) []byte {
	l := in.Hits[i].Limit
	start := len(dst)
	if in.Hits[i].Tells {
		if len(sec.Raw) == 0 { // there is nothing to judge
			return dst
		}
		return p.tellHit(dst, sec, in, i, latest, res)
	}
	if !l.plain || sec.HasExtra() || in.Hits[i].Reset || l.overrides[string(in.Key)] != nil || len(p.allow) > 0 {
		return p.judgeHit(dst, sec, in, i, latest, res)
	}
	dst = slices.Grow(dst, keystate.MaxHead+len(sec.Body())+growth)
	dst = append(append(dst, l.Hash[:]...), 0) // most bodies' lengths take one byte
	body := len(dst)
	dst = append(dst, sec.Body()...)
	window, added, spent := l.Window.AddSpent(dst[body:], in.at(l), in.Hits[i].Amount)
	switch {
	case added.Late:
		res.Late++
		res.SpentAt = max(res.SpentAt, spent)
		return append(dst[:start], sec.Raw...)
	case !l.quiet(added):
		return p.judgeHit(dst[:start], sec, in, i, latest, res)
	}
	if added.Count >= l.nearFrom {
		noteNear(p, l, &in.Hits[i], in.Key, window, added.Count)
	}
	res.SpentAt = max(res.SpentAt, spent)
	return keystate.CloseSection(dst[:body], window)
}

// judgeHit is hit for a section with more than a window, or whose verdict may change.
func (p *Stepper) judgeHit(dst []byte, sec keystate.Section, in *Input, i int, latest event.Micros, res *Result) []byte {
	l, hit := in.Hits[i].Limit, &in.Hits[i]
	x := &p.extras
	p.window = append(p.window[:0], p.take(sec)...)
	x.WasReset = x.WasReset && l.Rule.reset != nil
	f := facts{at: in.at(l), adds: hit.Amount > 0, counts: hit.Amount > 0}
	before := toldBy(l, x, p.allow, p.window, in.Key, f.at)
	switch {
	case hit.Refund:
		if f.took = p.takeBack(l, hit, in.At); !f.took {
			return p.keepHit(dst, sec, l, latest, res)
		}
	case hit.Reset:
		if !p.forget(&f, l, f.at) {
			return p.keepHit(dst, sec, l, latest, res)
		}
	case p.isForgotten(f.at):
		res.Late++
		return p.keepHit(dst, sec, l, latest, res)
	default:
		was := l.Window.Latest(p.window)
		p.add(&f, l, hit, f.at)
		if f.added.Late {
			res.Late++
			return p.keepHit(dst, sec, l, latest, res)
		}
		if in.At >= x.LastTold(was) && hit.Tier != KeepTier {
			x.Tier, x.Told, x.WasTold = l.tierID(hit.Tier), hit.Told, false
		}
		if l.Rule.Refunds && in.ID != "" {
			x.Remembered = x.Remembered.Remember(&l.Window, p.window, keystate.Remembered{
				ID: xxhash.Sum64String(in.ID), At: f.at, Amount: hit.Amount, Cost: hit.Cost,
			})
		}
	}
	f.window, f.latest = p.window, l.Window.Latest(p.window)
	if f.reset { // distinct values that there are none of have no time
		f.latest = max(f.latest, f.at)
	}
	p.limitAt(l, &f, in.Key)
	f.adds = f.adds && !(in.PermitAt != 0 && f.tooHigh(l))
	same := p.settle(l, &f, in, i, res)
	if l.Quota && !p.Fuses.shadow(l) { // nobody sees what a rule in shadow mode would leave
		f.window = p.window // may be emptied
		p.leftBy(l, &f, before)
	}
	res.SpentAt = max(res.SpentAt, l.spent(x), l.Window.Spent(p.window))
	if same && sec.Version == keystate.Version {
		extra, _, _ := sec.Parts()
		return keystate.AppendSection(dst, l.Hash, extra, p.window)
	}
	return p.appendSection(dst, l.Hash, p.window)
}

// keepHit keeps a section that the event did not change.
func (p *Stepper) keepHit(dst []byte, sec keystate.Section, l *Limit, latest event.Micros, res *Result) []byte {
	if len(sec.Raw) == 0 {
		return dst
	}
	return p.keep(dst, sec, l, nil, latest, res)
}
