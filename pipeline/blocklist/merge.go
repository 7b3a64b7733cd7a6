package blocklist

import "github.com/tallygate/tallygate/verdict"

// mergeAt is the number of waiting changes from which they are merged: a flood of changes is of few keys, and a table
// that is behind need not go through all that each of them was. A variable, so that a test need not write as many.
var mergeAt = 8 * readCount

// merged is the sum of several changes of a record key, in their order.
type merged struct {
	removed bool // ahead of the verdict, if there is one
	says    bool // there is a verdict
	verdict verdict.Verdict
}

// merge makes one delivery of several changes' deliveries; a sink that is told it holds then what
// it would hold had it been told all of them.
func merge(all []*delivery) *delivery {
	out := &delivery{}
	by := map[string]*merged{}
	for _, d := range all {
		d.mergeInto(by)
		out.changes += d.changes
		if d.applied > 0 {
			out.applied = d.applied
		}
	}
	out.all = make([]verdict.Verdict, 0, len(by))
	for key, m := range by {
		if m.removed {
			out.steps = append(out.steps, step{removed: []byte(key)})
		}
		if m.says {
			out.all = append(out.all, m.verdict)
		}
	}
	if len(out.all) > 0 {
		out.steps = append(out.steps, step{verdicts: out.all})
	}
	return out
}

func (d *delivery) mergeInto(by map[string]*merged) {
	n := 0
	at := func() *merged {
		m := by[d.keys[n]]
		if m == nil {
			m = &merged{}
			by[d.keys[n]] = m
		}
		n++
		return m
	}
	for _, s := range d.steps {
		if s.removed != nil {
			*at() = merged{removed: true}
			continue
		}
		for i := range s.verdicts {
			if m := at(); !m.says || m.verdict.Seq <= s.verdicts[i].Seq {
				m.says, m.verdict = true, s.verdicts[i]
			}
		}
	}
}
