package replay

import "github.com/tallygate/tallygate/internal/tools/engine"

// kept counts events whose requests would not have been let in as usual. An event counts once, however many
// limits kept it out.
type kept struct {
	covered int // by verdicts in force
	denied  int // by strict limits
	out     int // by either
}

func (k *kept) add(covered, denied bool) {
	if covered {
		k.covered++
	}
	if denied {
		k.denied++
	}
	if covered || denied {
		k.out++
	}
}

// keep takes in what kept an event out, in all and by its keys.
func (r *run) keep(out *engine.Outcome) {
	r.kept.add(len(out.Covered) > 0, len(out.Denied) > 0)
	for i := range out.Covered {
		key := out.Covered[i].Key
		if i == 0 || out.Covered[i-1].Key != key {
			r.of(key).add(true, deniesKey(out.Denied, key))
		}
	}
	for i := range out.Denied {
		key := out.Denied[i].Key
		if !deniesKey(out.Denied[:i], key) && !coversKey(out.Covered, key) {
			r.of(key).add(false, true)
		}
	}
}

// of returns a key's counts.
func (r *run) of(key string) *kept {
	k := r.keys[key]
	if k == nil {
		k = &kept{}
		r.keys[key] = k
	}
	return k
}

func deniesKey(list []engine.Denial, key string) bool {
	for i := range list {
		if list[i].Key == key {
			return true
		}
	}
	return false
}

func coversKey(list []engine.Cover, key string) bool {
	for i := range list {
		if list[i].Key == key {
			return true
		}
	}
	return false
}

// keeps reports whether a limit, or a candidate, kept the latest event out.
func (r *run) keeps(name string) bool {
	for i := range r.out.Covered {
		if r.out.Covered[i].Rule == name {
			return true
		}
	}
	for i := range r.out.Denied {
		if r.out.Denied[i].Limit.Name == name {
			return true
		}
	}
	return false
}

// eachKeeper calls f with the name of each limit, or candidate, that kept the latest event out, once each.
func (r *run) eachKeeper(f func(name string)) {
	for i := range r.out.Covered {
		f(r.out.Covered[i].Rule)
	}
	for i := range r.out.Denied {
		name := r.out.Denied[i].Limit.Name
		twice := false
		for j := range r.out.Covered {
			twice = twice || r.out.Covered[j].Rule == name
		}
		if !twice {
			f(name)
		}
	}
}

// changes counts the events that two sets of rules treat differently.
type changes struct {
	newly, noLonger, both int
	rules                 map[string]*ruleChanges
}

type ruleChanges struct{ newly, noLonger int }

// add takes in what became of the latest event by both.
func (c *changes) add(now, old *run) {
	isNow, isOld := len(now.out.Covered)+len(now.out.Denied) > 0, len(old.out.Covered)+len(old.out.Denied) > 0
	switch {
	case isNow && isOld:
		c.both++
	case isNow:
		c.newly++
	case isOld:
		c.noLonger++
	}
	now.eachKeeper(func(name string) {
		if !old.keeps(name) {
			c.of(name).newly++
		}
	})
	old.eachKeeper(func(name string) {
		if !now.keeps(name) {
			c.of(name).noLonger++
		}
	})
}

func (c *changes) of(rule string) *ruleChanges {
	r := c.rules[rule]
	if r == nil {
		r = &ruleChanges{}
		if c.rules == nil {
			c.rules = map[string]*ruleChanges{}
		}
		c.rules[rule] = r
	}
	return r
}
