package instance

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
)

// shards is the number of a table's parts, each with a lock of its own.
const shards = 16

// table has the counters of one limit, by key. It keeps a bounded number of keys: the least recently used
// one leaves for a new one. Keys with something under way stay, so there are more while more is under way.
type table struct {
	id    uint64 // the order in which a request locks parts of tables
	seed  maphash.Seed
	most  atomic.Int64
	keys  atomic.Int64
	parts [shards]part
}

// part is the keys whose hashes are alike.
type part struct {
	mu      sync.Mutex
	entries map[uint64]*entry // by the hash of the key
	recent  entry             // the head of a ring: the next one is the most recently used; nothing under way

	admitted, denied, evicted uint64

	_ [64]byte // no part shares a cache line with the next one
}

// entry holds one key's counters.
type entry struct {
	hash       uint64
	key        string
	same       *entry // the next key with this hash
	prev, next *entry // in the ring; nil while something is under way
	used       event.Micros

	window []byte            // a state of package windows
	form   rules.SectionHash // of the limit's Names: what window is of
	warm   warmth            // of a bucket that warms up
	held   event.Decimal     // what is under way
}

func newTable(id uint64) *table {
	t := &table{id: id, seed: maphash.MakeSeed()}
	for i := range t.parts {
		p := &t.parts[i]
		p.entries = map[uint64]*entry{}
		p.recent.prev, p.recent.next = &p.recent, &p.recent
	}
	return t
}

// part returns a key's part, and its hash.
func (t *table) part(key []byte) (*part, uint64) {
	hash := maphash.Bytes(t.seed, key)
	return &t.parts[hash%shards], hash
}

// find returns a key's entry; nil when it has none. The part is locked.
func (p *part) find(hash uint64, key []byte) *entry {
	e := p.entries[hash]
	for e != nil && e.key != string(key) {
		e = e.same
	}
	return e
}

// add adds an entry for a key that has none. The part is locked.
func (t *table) add(p *part, hash uint64, key []byte) *entry {
	e := &entry{hash: hash, key: string(key), same: p.entries[hash]}
	p.entries[hash] = e
	t.keys.Add(1)
	return e
}

// touch makes an entry the most recently used one. The part is locked.
func (p *part) touch(e *entry, now event.Micros) {
	e.used = max(e.used, now)
	if p.recent.next == e {
		return
	}
	e.unlink()
	if e.held == 0 {
		e.prev, e.next = &p.recent, p.recent.next
		e.prev.next, e.next.prev = e, e
	}
}

func (e *entry) unlink() {
	if e.next != nil {
		e.prev.next, e.next.prev = e.next, e.prev
		e.prev, e.next = nil, nil
	}
}

// hold changes what is under way. The part is locked.
func (p *part) hold(e *entry, n event.Decimal) {
	if e.held += n; e.held > 0 {
		e.unlink()
		return
	}
	p.touch(e, e.used)
}

// drop removes the entry that was not used for longest, if there is one. The part is locked.
func (t *table) drop(p *part) bool {
	e := p.recent.prev
	if e == &p.recent {
		return false
	}
	e.unlink()
	if first := p.entries[e.hash]; first != e {
		for first.same != e {
			first = first.same
		}
		first.same = e.same
	} else if e.same != nil {
		p.entries[e.hash] = e.same
	} else {
		delete(p.entries, e.hash)
	}
	p.evicted++
	t.keys.Add(-1)
	return true
}

// isFull reports whether there are more keys than there may be.
func (t *table) isFull() bool { return t.keys.Load() > t.most.Load() }

// shrink makes room: the least recently used keys leave. No part is locked by the caller.
func (t *table) shrink() {
	for t.isFull() {
		var oldest *part
		var used event.Micros
		for i := range t.parts {
			p := &t.parts[i]
			p.mu.Lock()
			if e := p.recent.prev; e != &p.recent && (oldest == nil || e.used < used) {
				oldest, used = p, e.used
			}
			p.mu.Unlock()
		}
		if oldest == nil {
			return // all of them have something under way
		}
		oldest.mu.Lock()
		if t.isFull() {
			t.drop(oldest)
		}
		oldest.mu.Unlock()
	}
}

func (t *table) resize(most int) {
	t.most.Store(int64(most))
	t.shrink()
}

func (t *table) stat() (s Stat) {
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.Lock()
		s.Admitted, s.Denied, s.Evicted = s.Admitted+p.admitted, s.Denied+p.denied, s.Evicted+p.evicted
		p.mu.Unlock()
	}
	s.Keys = int(t.keys.Load())
	return s
}
