// Package logic decides whether conditions on the values of an event can hold together. For each value, a term,
// it keeps the set of what it may be, and it takes `or` apart into cases. It errs to one side only: what it
// calls impossible is impossible, and what it cannot decide may be.
package logic

// Bounds on one Solver: beyond them conditions are taken to be possible.
const (
	maxCases = 64
	maxWork  = 20_000 // intersections of cases
)

// Case is a conjunction: what each term may be, which is not nothing.
type Case map[string]Domain

// Cases is a disjunction of cases. The zero value is impossible.
type Cases struct {
	anything bool
	list     []Case
}

// Always holds whatever the terms are.
func Always() Cases { return Cases{anything: true} }

// Of are the cases in which a term is in a domain.
func Of(term string, d Domain) Cases {
	if d.Empty() {
		return Cases{}
	}
	return Cases{list: []Case{{term: d}}}
}

// Never reports whether no values of the terms make the condition hold.
func (c Cases) Never() bool { return !c.anything && len(c.list) == 0 }

// Conflict is a term of which two conditions want what cannot be together.
type Conflict struct {
	Term string
	A, B Domain
}

// Solver combines conditions. Each conjunction that fails leaves the conflict that it failed by.
type Solver struct {
	Conflict Conflict

	work int
}

// Or holds where a or b does.
func (s *Solver) Or(a, b Cases) Cases {
	switch {
	case a.anything || b.anything || len(a.list)+len(b.list) > maxCases:
		return Always()
	case len(a.list) == 0:
		return b
	case len(b.list) == 0:
		return a
	}
	return Cases{list: append(append([]Case(nil), a.list...), b.list...)}
}

// And holds where a and b do.
func (s *Solver) And(a, b Cases) Cases {
	switch {
	case a.anything:
		return b
	case b.anything:
		return a
	}
	if s.work += len(a.list) * len(b.list); s.work > maxWork {
		return Always()
	}
	var out Cases
	for _, x := range a.list {
		for _, y := range b.list {
			both, ok := s.meet(x, y)
			switch {
			case !ok:
			case len(out.list) == maxCases:
				return a // it holds wherever both do
			default:
				out.list = append(out.list, both)
			}
		}
	}
	return out
}

func (s *Solver) meet(a, b Case) (Case, bool) {
	out := make(Case, len(a)+len(b))
	for term, d := range a {
		out[term] = d
	}
	for term, d := range b {
		have, both := out[term]
		if both {
			met := have.And(d)
			if met.Empty() {
				s.Conflict = Conflict{term, have, d}
				return nil, false
			}
			d = met
		}
		out[term] = d
	}
	return out, true
}

// Values returns what a term may be, as text; ok is false where that is not a list.
func (c Cases) Values(term string) (texts map[string]bool, ok bool) {
	if c.anything {
		return nil, false
	}
	texts = map[string]bool{}
	for _, one := range c.list {
		d, known := one[term]
		if !known || !d.values(texts) {
			return nil, false
		}
	}
	return texts, true
}

// Formula is a predicate: when it is true, when false, and when it fails, which is neither.
type Formula struct{ True, False, Fails Cases }

// Unknown is a formula that may be anything at any time.
func Unknown() Formula { return Formula{Always(), Always(), Always()} }

// Constant is a formula that is always the same.
func Constant(holds bool) Formula {
	if holds {
		return Formula{True: Always()}
	}
	return Formula{False: Always()}
}

// Fails of b matter only where a leaves b to be asked, as programs do.

// Both is a and b.
func (s *Solver) Both(a, b Formula) Formula {
	f := Formula{False: s.Or(a.False, s.And(a.True, b.False)), Fails: s.Or(a.Fails, s.And(a.True, b.Fails))}
	f.True = s.And(a.True, b.True) // at last: its conflict is told
	return f
}

// Either is a or b.
func (s *Solver) Either(a, b Formula) Formula {
	return Formula{
		True:  s.Or(a.True, s.And(a.False, b.True)),
		False: s.And(a.False, b.False),
		Fails: s.Or(a.Fails, s.And(a.False, b.Fails)),
	}
}

// Not is the contrary of a.
func (*Solver) Not(a Formula) Formula { return Formula{True: a.False, False: a.True, Fails: a.Fails} }

// If is a where the condition holds, else b.
func (s *Solver) If(condition, a, b Formula) Formula {
	choose := func(x, y Cases) Cases { return s.Or(s.And(condition.True, x), s.And(condition.False, y)) }
	return Formula{True: choose(a.True, b.True), False: choose(a.False, b.False), Fails: s.Or(condition.Fails, choose(a.Fails, b.Fails))}
}

// DoesNotHold is when a predicate is not true: what fails does not hold, either.
func (s *Solver) DoesNotHold(f Formula) Cases { return s.Or(f.False, f.Fails) }
