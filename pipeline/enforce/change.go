package enforce

import (
	"slices"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Replace makes all the verdicts of a shard, and drops what else it had. A check that runs meanwhile sees each key
// either as it was or as it is.
func (t *Table) Replace(shard int, all []verdict.Verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.touch()
	t.rounds[shard]++
	if t.rounds[shard] == 1 {
		t.ready.Add(1)
	}
	for i := range all {
		t.put(shard, &all[i], true)
	}
	t.keep(func(h held) bool { return h.shard != int32(shard) || h.round == t.rounds[shard] })
}

// Apply adds verdicts to a shard, in order. A clear ends the block of its key and rule; a
// verdict whose seq is below that of the one held is ignored.
func (t *Table) Apply(shard int, changes []verdict.Verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.touch()
	for i := range changes {
		t.put(shard, &changes[i], false)
	}
}

// Remove takes the verdict with this record key out of the shard.
func (t *Table) Remove(shard int, recordKey []byte) {
	k, err := verdict.ParseRecordKey(recordKey)
	if err != nil {
		return // no verdict has such a key
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.find(k.Key); e != nil {
		if i := e.find(k.Rule, k.Warn); i >= 0 && e.held[i].shard == int32(shard) {
			t.set(e, slices.Delete(slices.Clone(e.held), i, i+1))
		}
	}
}

// Heartbeat notes up to which moment a shard is in step.
func (t *Table) Heartbeat(shard int, applied event.Micros) { t.applied[shard].Store(int64(applied)) }

// touch moves the coarse clock, so that a verdict that comes in is in force at once.
func (t *Table) touch() {
	if c := t.clock.Load(); c != 0 {
		t.clock.CompareAndSwap(c, int64(now()))
	}
}

// put makes v what its key has under its rule, unless that is newer; force takes it in any case.
func (t *Table) put(shard int, v *verdict.Verdict, force bool) {
	if len(v.Key) == 0 || slices.ContainsFunc(v.Key, func(d event.Dim) bool { return d.Value == "" }) {
		return // such a key is no key: nobody has it
	}
	over := v.State == verdict.Clear || v.Until <= t.Now()
	e := t.find(v.Key)
	if e == nil {
		if !over {
			t.add(v.Key, hold(shard, t.rounds[shard], v))
		}
		return
	}
	i := e.find(v.Rule, v.State == verdict.Warn)
	switch {
	case i >= 0 && !force && e.held[i].verdict.Seq > v.Seq, i < 0 && over:
		return
	case i < 0:
		t.set(e, append(slices.Clone(e.held), hold(shard, t.rounds[shard], v)))
	case over:
		t.set(e, slices.Delete(slices.Clone(e.held), i, i+1))
	default:
		list := slices.Clone(e.held)
		list[i] = hold(shard, t.rounds[shard], v)
		t.set(e, list)
	}
}

// find returns a key's entry, for the writer: nil when there is none.
func (t *Table) find(key []event.Dim) *entry {
	x := t.index.Load()
	s := x.shape(key)
	if s == nil {
		return nil
	}
	return x.find(s, &query{dims: key})
}

// shape returns the shape that a key has; nil when no entry has it.
func (x *index) shape(key []event.Dim) *shape {
	for _, s := range x.shapes {
		if slices.EqualFunc(s.names, key, func(name string, d event.Dim) bool { return name == d.Name }) {
			return s
		}
	}
	return nil
}

// add inserts a key that the table doesn't have. Its shape is there before it is.
func (t *Table) add(key []event.Dim, h held) {
	x := t.index.Load()
	if x.worn(t.entries+1, t.flagged) {
		x, t.flagged = x.resized(t.entries + 1)
		t.index.Store(x)
	}
	s := x.shape(key)
	if s == nil {
		t.salt += 0x9E3779B97F4A7C15
		s = &shape{salt: t.salt}
		for _, d := range key {
			s.names = append(s.names, d.Name)
		}
		x = x.withShapes(append(slices.Clone(x.shapes), s))
		t.index.Store(x)
	}
	hash, _ := (&query{dims: key}).hash(s)
	e := &entry{shape: s, hash: hash, value: key[0].Value}
	for _, d := range key[1:] {
		e.more = append(e.more, d.Value)
	}
	t.flagged += x.insert(e.with([]held{h}))
	s.entries++
	t.entries++
	t.size.Add(1)
}

// set gives an entry other verdicts; without any it is removed, and so is a shape without entries.
func (t *Table) set(e *entry, list []held) {
	x := t.index.Load()
	t.size.Add(int64(len(list) - len(e.held)))
	if len(list) > 0 {
		x.slot(e).Store(e.with(list))
		return
	}
	x.remove(e)
	t.entries--
	if e.shape.entries--; e.shape.entries == 0 {
		t.index.Store(x.withShapes(slices.DeleteFunc(slices.Clone(x.shapes), func(s *shape) bool { return s == e.shape })))
	}
}

// keep drops every verdict that ok doesn't hold for.
func (t *Table) keep(ok func(held) bool) {
	for e := range t.index.Load().all {
		drop := func(h held) bool { return !ok(h) }
		if slices.ContainsFunc(e.held, drop) {
			t.set(e, slices.DeleteFunc(slices.Clone(e.held), drop))
		}
	}
}

// sweep frees what has run out.
func (t *Table) sweep(at event.Micros) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keep(func(h held) bool { return h.until > at })
	if x := t.index.Load(); x.sparse(t.entries) {
		x, t.flagged = x.resized(t.entries)
		t.index.Store(x)
	}
}
