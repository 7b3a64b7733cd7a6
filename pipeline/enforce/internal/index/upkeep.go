package index

import (
	"slices"
	"sync/atomic"

	"github.com/tallygate/tallygate/event"
)

// renew begins another generation of a shard's verdicts, and makes room for that many. The index
// grows by a half at least, so that the first snapshots of many shards don't each move all that is
// there.
func (w *writer) renew(shard, count int) {
	w.generations[shard]++
	if keys := w.entries - w.older(shard) + count; bucketsFor(keys) > len(w.view.buckets) {
		w.resize(max(keys, w.entries+w.entries/2))
	}
}

// dropOlder drops the verdicts of a shard that are of earlier generations. It looks only where the
// shard has any, and no further when all are found.
func (w *writer) dropOlder(shard int) {
	left, generation := w.older(shard), w.generations[shard]
	for number := 0; left > 0 && number < len(w.arena.use); number++ {
		if w.arena.data[number] == nil || w.arena.use[number].shards&shardBit(shard) == 0 {
			continue
		}
		for ref, rec := range w.arena.records(number) {
			r, is := splitRecord(rec), false
			r.walk(func(h heading) {
				c := w.view.classes[h.class] // nil: the record was given up
				is = is || c != nil && c.isOlder(shard, generation)
			})
			if is {
				left -= w.dropFrom(ref, rec, func(h held) bool { return h.class.isOlder(shard, generation) })
			}
		}
	}
}

// older returns how many verdicts of a shard are of a generation before its present one.
func (w *writer) older(shard int) (verdicts int) {
	for _, c := range w.view.classes {
		if c != nil && c.isOlder(shard, w.generations[shard]) {
			verdicts += c.refs
		}
	}
	return verdicts
}

// sweep drops the verdicts in a chunk that ended until at.
func (w *writer) sweep(number int, at event.Micros) {
	if w.arena.data[number] == nil || w.arena.use[number].live == 0 {
		return
	}
	for ref, rec := range w.arena.records(number) {
		r, ended := splitRecord(rec), false
		r.walk(func(h heading) { ended = ended || h.until <= at })
		if ended {
			w.dropFrom(ref, rec, func(h held) bool { return h.until <= at })
		}
	}
}

// dropFrom drops those verdicts of a record, if it is held, and returns how many.
func (w *writer) dropFrom(ref uint32, rec []byte, which func(held) bool) (dropped int) {
	r := splitRecord(rec)
	for b, j := range w.view.buckets.slots(w.view.hashOf(rec)) {
		if b.refs[j].Load() == ref {
			w.list = r.appendList(w.list[:0], w.view.classes)
			had := len(w.list)
			left := slices.DeleteFunc(w.list, which)
			w.set(w.view.shapes[r.shape], r.key, b, j, left)
			return had - len(left)
		}
	}
	return 0
}

// shrink gives up what an index needs no more: buckets, if it is much larger than it need be,
// shapes and classes that nothing has, and garbage.
func (w *writer) shrink() {
	if len(w.view.buckets) > 4*bucketsFor(w.entries) {
		w.resize(w.entries + w.entries/16)
	}
	w.release()
	w.tidy()
}

// release gives up shapes and classes that nothing has any more.
func (w *writer) release() {
	unused := func(c *Class) bool { return c != nil && c.refs == 0 }
	empty := func(x *shape) bool { return x != nil && x.entries == 0 && x.number != shapeUID }
	if !slices.ContainsFunc(w.view.classes, unused) && !slices.ContainsFunc(w.view.shapes, empty) {
		return
	}
	w.publish(func(v *View) {
		v.classes = slices.Clone(v.classes)
		shapes := slices.Clone(v.shapes)
		for i, c := range v.classes {
			if unused(c) {
				delete(w.interned, c.text)
				v.classes[i] = nil
			}
		}
		for i, x := range shapes {
			if empty(x) {
				shapes[i] = nil
			}
		}
		for shapes[len(shapes)-1] == nil { // uid's is always there
			shapes = shapes[:len(shapes)-1]
		}
		v.setShapes(shapes)
	})
}

// tidy moves records out of the chunks with the most garbage until there is at most an eighth as
// much of it as of records.
func (w *writer) tidy() {
	for {
		worst := w.arena.worst()
		if worst < 0 {
			break
		}
		if !w.vacate(worst) {
			return
		}
	}
	if w.arena.spare() {
		w.vacate(w.arena.head)
		w.arena.head = -1
	}
}

// vacate moves what is held in a chunk to the newest one, and gives the chunk up.
func (w *writer) vacate(number int) bool {
	for ref, rec := range w.arena.records(number) {
		if w.arena.use[number].live == 0 {
			break
		}
		if slot := w.slotOf(ref, rec); slot != nil {
			to, ok := w.addRecord(rec)
			if !ok {
				return false
			}
			slot.Store(to)
			w.arena.use[w.arena.head].shards |= w.arena.use[number].shards
			w.arena.drop(ref, len(rec))
		}
	}
	w.arena.free(number)
	w.publishChunks()
	return true
}

// slotOf returns the slot that refers to a record; nil when it was given up.
func (w *writer) slotOf(ref uint32, rec []byte) *atomic.Uint32 {
	for b, j := range w.view.buckets.slots(w.view.hashOf(rec)) {
		if b.refs[j].Load() == ref {
			return &b.refs[j]
		}
	}
	return nil
}
