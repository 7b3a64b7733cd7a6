// Package blocks holds the blocklist as the console's pages list it: it follows the blocklist in Redis, as an
// enforcer does, and answers pages of it.
package blocks

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// MaxEntries bounds the verdicts of a List, each of at most some 800 bytes. What is beyond is counted, and a page
// says so.
const MaxEntries = 1_000_000

// List is the blocklist. It is a blocklist.Sink of a feed with AnyShards. Many goroutines may use it; its zero
// value is not ready, see New.
type List struct {
	now func() time.Time
	max int

	mu      sync.RWMutex
	entries []entry
	places  map[string]int // by record key: in entries
	shards  []shard
	left    int // verdicts that were left out since the last snapshot
	swept   time.Time
	texts   map[string]string // rules' names and the like, each once
}

type entry struct {
	record string
	shard  int32
	v      verdict.Verdict
}

// shard is one shard's progress.
type shard struct {
	there   bool // a snapshot was taken
	applied event.Micros
}

// New returns an empty list. now is its clock; nil is time.Now.
func New(now func() time.Time) *List {
	if now == nil {
		now = time.Now
	}
	return &List{now: now, max: MaxEntries, places: map[string]int{}, texts: map[string]string{}}
}

// SetShards is told how many shards the blocklist has, by the feed.
func (l *List) SetShards(n int) error {
	if n < 1 {
		return errors.New("blocks: a blocklist has at least one shard")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shards = make([]shard, n)
	return nil
}

// Replace implements blocklist.Sink.
func (l *List) Replace(id int, all []verdict.Verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.entries) - 1; i >= 0; i-- {
		if int(l.entries[i].shard) == id {
			l.remove(i)
		}
	}
	l.left = 0
	for i := range all {
		l.put(id, &all[i])
	}
	if s := l.shard(id); s != nil {
		s.there = true
	}
}

// Apply implements blocklist.Sink.
func (l *List) Apply(id int, changes []verdict.Verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range changes {
		l.put(id, &changes[i])
	}
}

// Remove implements blocklist.Sink.
func (l *List) Remove(_ int, recordKey []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.places[string(recordKey)]; ok {
		l.remove(at)
	}
}

// sweepEvery is the interval at which ended verdicts are removed. Until then it is only not shown.
const sweepEvery = time.Minute

// Heartbeat implements blocklist.Sink.
func (l *List) Heartbeat(id int, applied event.Micros) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.shard(id); s != nil {
		s.applied = max(s.applied, applied)
	}
	if now := l.now(); now.Sub(l.swept) >= sweepEvery {
		l.swept = now
		l.sweep(event.FromTime(now))
	}
}

func (l *List) shard(id int) *shard {
	if id < 0 || id >= len(l.shards) {
		return nil
	}
	return &l.shards[id]
}

// put stores a verdict, unless what is stored is newer. A cleared one stays a while, so that an older verdict
// that comes late does not bring the block back.
func (l *List) put(id int, v *verdict.Verdict) {
	if v.State == verdict.Left {
		return
	}
	record := string(verdict.AppendRecordKey(nil, v))
	at, known := l.places[record]
	switch {
	case known && l.entries[at].v.Seq > v.Seq:
		return
	case known:
		l.entries[at].v = l.slim(v)
		return
	case len(l.entries) >= l.max:
		l.left++
		return
	}
	l.places[record] = len(l.entries)
	l.entries = append(l.entries, entry{record, int32(id), l.slim(v)})
}

// slim is a verdict whose repeated texts are there once for all.
func (l *List) slim(v *verdict.Verdict) verdict.Verdict {
	out := *v
	out.Rule, out.Public, out.Step = l.text(v.Rule), l.text(v.Public), l.text(v.Step)
	out.Key = make([]event.Dim, len(v.Key))
	for i, d := range v.Key {
		out.Key[i] = event.Dim{Name: l.text(d.Name), Value: d.Value}
	}
	return out
}

// maxTexts bounds the texts that are kept once: there are as many as rules and dimensions.
const maxTexts = 10_000

func (l *List) text(s string) string {
	if kept, ok := l.texts[s]; ok {
		return kept
	}
	if len(l.texts) < maxTexts {
		l.texts[s] = s
	}
	return s
}

// remove takes out the entry at a place; the last one moves there.
func (l *List) remove(at int) {
	delete(l.places, l.entries[at].record)
	last := len(l.entries) - 1
	if at != last {
		l.entries[at] = l.entries[last]
		l.places[l.entries[at].record] = at
	}
	l.entries[last] = entry{}
	l.entries = l.entries[:last]
}

// clearedStays is the time for which a cleared verdict is remembered.
const clearedStays = 10 * event.Minute

func (l *List) sweep(now event.Micros) {
	for i := len(l.entries) - 1; i >= 0; i-- {
		v := &l.entries[i].v
		if v.Until <= now && (v.State != verdict.Clear || v.Until <= now-clearedStays) {
			l.remove(i)
		}
	}
}

// Health describes the feed of the blocklist.
type Health struct {
	Ready     bool          // a snapshot of each shard was taken
	Staleness time.Duration // of the shard that is furthest behind; 0 or less is up to date; unknown before Ready
	Stored    int           // also what is over, and not swept yet
	LeftOut   int           // verdicts that did not fit
}

// Health may be called at any time.
func (l *List) Health() Health {
	l.mu.RLock()
	defer l.mu.RUnlock()
	h := Health{Ready: len(l.shards) > 0, Stored: len(l.entries), LeftOut: l.left}
	behind := event.Micros(math.MaxInt64)
	for _, s := range l.shards {
		h.Ready = h.Ready && s.there
		behind = min(behind, s.applied)
	}
	if h.Ready && behind != math.MaxInt64 {
		h.Staleness = max(0, l.now().Sub(behind.Time()))
	}
	return h
}
