package enforce

import (
	"math"
	"slices"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Replace makes all the verdicts of a shard, and drops what else it had. A check that runs meanwhile sees each key's verdicts either
// as they were or as they are, and what stays is in force throughout. It costs as much as the shard is large, however
// many others there are.
func (t *Table) Replace(shard int, all []verdict.Verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.touch()
	s := t.store
	s.renew(shard, len(all))
	for i := range all {
		s.put(shard, &all[i], true)
	}
	s.dropOlder(shard)
	if s.sparse() {
		s.resize(s.entries + s.entries/16)
	}
	s.release()
	s.tidy()
	if !t.had[shard] {
		t.had[shard] = true
		t.ready.Add(1)
	}
	t.changed()
	t.watch()
}

// Apply adds verdicts to a shard, in order. A clear ends the block of its key and rule; a
// verdict whose seq is below that of the one held is ignored.
func (t *Table) Apply(shard int, changes []verdict.Verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.touch()
	for i := range changes {
		t.store.put(shard, &changes[i], false)
	}
	t.changed()
}

// Remove takes the verdict with this record key out of the shard.
func (t *Table) Remove(shard int, recordKey []byte) {
	k, err := verdict.ParseRecordKey(recordKey)
	if err != nil {
		return // no verdict has such a key
	}
	k.Key = canonical(k.Key)
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.store
	shape := s.view.shape(k.Key)
	b, slot, list := s.find(shape, k.Key)
	if i := indexOf(list, k.Rule, k.Warn); i >= 0 && list[i].class.shard == shard {
		s.key = appendKey(s.key[:0], k.Key)
		s.set(shape, s.key, b, slot, slices.Delete(list, i, i+1))
	}
	t.changed()
}

// always is what a Heartbeat says of a shard that nothing has to keep in step.
const always event.Micros = math.MaxInt64

// Heartbeat notes up to which moment a shard is in step: at most up to now, since a publisher's clock may be ahead.
func (t *Table) Heartbeat(shard int, applied event.Micros) {
	if applied != always {
		applied = min(applied, now())
	}
	t.applied[shard].Store(int64(applied))
	t.watch()
}

// touch moves the coarse clock, so that a verdict that comes in is in force at once.
func (t *Table) touch() {
	if c := t.clock.Load(); c != 0 {
		t.clock.CompareAndSwap(c, int64(now()))
	}
}

// changed notes what the writer did, for those who don't hold the lock.
func (t *Table) changed() {
	t.size.Store(int64(t.store.verdicts))
	t.bytes.Store(int64(t.store.size + len(t.store.view.buckets)*bucketBytes))
	t.full.Store(t.store.full)
}

// put makes v what its key has under its rule, unless that is newer; force takes it in any case.
func (s *store) put(shard int, v *verdict.Verdict, force bool) {
	if len(v.Key) == 0 || slices.ContainsFunc(v.Key, func(d event.Dim) bool { return d.Value == "" }) {
		return // such a key is no key: nobody has it
	}
	key := canonical(v.Key) // of an aggregator from before values were cut
	// What has run out is taken, too: it may be the clock that is ahead. It is swept when that is believed.
	over := v.State == verdict.Clear
	shape := s.view.shape(key)
	b, slot, list := s.find(shape, key)
	i := indexOf(list, v.Rule, v.State == verdict.Warn)
	switch {
	case i < 0 && over, i >= 0 && !force && list[i].seq > v.Seq:
		return
	case over:
		list = slices.Delete(list, i, i+1)
	case i < 0:
		list = append(list, s.hold(shard, v))
	default:
		list[i] = s.hold(shard, v)
	}
	if shape == nil {
		shape = s.shapeOf(key)
	}
	s.key = appendKey(s.key[:0], key)
	s.full = !s.set(shape, s.key, b, slot, list)
	if s.opened {
		s.tidy()
	}
}

func (s *store) hold(shard int, v *verdict.Verdict) held {
	h := held{class: s.classOf(shard, v), until: v.Until, since: v.Since, seq: v.Seq, count: v.Count}
	if s.causes {
		h.cause = v.Cause
	}
	return h
}

// indexOf returns the place of the verdict that has this rule's record key; -1 when there is none.
func indexOf(list []held, rule string, notice bool) int {
	return slices.IndexFunc(list, func(h held) bool {
		return h.class.verdict.Rule == rule && (h.class.verdict.State == verdict.Warn) == notice
	})
}

// renew begins another generation of a shard's verdicts, and makes room for that many. The index grows by a half at least, so that the
// first snapshots of many shards don't each move all that is there.
func (s *store) renew(shard, count int) {
	s.generations[shard]++
	if keys := s.entries - s.older(shard) + count; bucketsFor(keys) > len(s.view.buckets) {
		s.resize(max(keys, s.entries+s.entries/2))
	}
}

// older returns how many verdicts of a shard are of a generation before its present one.
func (s *store) older(shard int) (verdicts int) {
	for _, c := range s.view.classes {
		if c != nil && c.isOlder(shard, s.generations[shard]) {
			verdicts += c.refs
		}
	}
	return verdicts
}

// dropOlder drops the verdicts of a shard that are of earlier generations. It looks only where the shard has any, and no further
// when all are found.
func (s *store) dropOlder(shard int) {
	left, generation := s.older(shard), s.generations[shard]
	for number := 0; left > 0 && number < len(s.chunks); number++ {
		if s.view.chunks[number] == nil || s.chunks[number].shards&shardBit(shard) == 0 {
			continue
		}
		for ref, rec := range s.records(number) {
			r, is := splitRecord(rec), false
			r.walk(func(h heading) {
				c := s.view.classes[h.class] // nil: the record was given up
				is = is || c != nil && c.isOlder(shard, generation)
			})
			if is {
				left -= s.dropFrom(ref, rec, func(h held) bool { return h.class.isOlder(shard, generation) })
			}
		}
	}
}

// dims returns the dimensions of a key of this shape.
func (s *shape) dims(key []byte) []event.Dim {
	dims := make([]event.Dim, len(s.names))
	for i, name := range s.names {
		var value []byte
		value, key, _ = nextValue(key, len(s.names))
		dims[i] = event.Dim{Name: name, Value: string(value)}
	}
	return dims
}

// sweep frees what has run out by the wall's clock, as far as that is believed, and by more than the grace.
func (t *Table) sweep(at event.Micros) {
	t.forget(min(at, t.steps.believed()) - event.FromDuration(t.cfg.Grace))
}

// forget frees what ended until at. Between chunks it lets the feed go on.
func (t *Table) forget(at event.Micros) {
	for number := 0; t.sweepChunk(number, at); number++ {
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.store
	if s.sparse() {
		s.resize(s.entries + s.entries/16)
	}
	s.release()
	s.tidy()
	t.changed()
}

// sweepChunk frees what has run out in one chunk; it returns whether there is such a chunk.
func (t *Table) sweepChunk(number int, at event.Micros) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.store
	if number >= len(s.chunks) {
		return false
	}
	if s.view.chunks[number] == nil || s.chunks[number].live == 0 {
		return true
	}
	for ref, rec := range s.records(number) {
		r, ended := splitRecord(rec), false
		r.walk(func(h heading) { ended = ended || h.until <= at })
		if ended {
			s.dropFrom(ref, rec, func(h held) bool { return h.until <= at })
		}
	}
	t.changed()
	return true
}

// dropFrom drops those verdicts of a record, if it is held, and returns how many.
func (s *store) dropFrom(ref uint32, rec []byte, which func(held) bool) (dropped int) {
	r := splitRecord(rec)
	for b, j := range s.view.slots(s.hashOf(rec)) {
		if b.refs[j].Load() == ref {
			s.list = r.appendList(s.list[:0], s.view.classes)
			had := len(s.list)
			left := slices.DeleteFunc(s.list, which)
			s.set(s.view.shapes[r.shape], r.key, b, j, left)
			return had - len(left)
		}
	}
	return 0
}
