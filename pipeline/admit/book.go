package admit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/instance"
	"github.com/tallygate/tallygate/pipeline/admit/internal/script"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/internal/failure"
	"github.com/tallygate/tallygate/rules"
)

// page is a picture of the rules and of Redis. It never changes; another one replaces it.
type page struct {
	idle     bool // no rule needs anything
	ahead    bool // permits may be granted ahead
	shards   *script.Shards
	newest   *version
	of       []*version          // by partition: those that its owner counts by, as far as is known
	inUse    []*version          // the different ones of these that have strict rules
	instance *instance.Limits    // nil: none
	heard    []heard             // by shard
	known    map[uint64]*version // all of these
}

// heard is the latest reading of a shard's clock.
type heard struct {
	*sync.Mutex
	*protocol.Heard
}

func (h heard) note(clock event.Micros, now protocol.Clock) {
	h.Lock()
	defer h.Unlock()
	h.Note(clock, now)
}

func (h heard) before(now protocol.Clock) event.Micros {
	h.Lock()
	defer h.Unlock()
	return h.Before(now)
}

// partition is the partition of a key.
func (p *page) partition(hash uint32) int32 { return int32(hash&0x7fffffff) % int32(len(p.of)) }

// concerns reports whether a strict rule is for an API.
func (p *page) concerns(api string) (any bool) {
	for _, v := range p.inUse {
		q := v.requests.Get().(*rules.Requests)
		any = any || q.Concern(api)
		v.requests.Put(q)
	}
	return any
}

// book follows the rules.
type book struct {
	cfg     *Config
	reader  *script.Shards // reads rules only
	current atomic.Pointer[page]
	mu      sync.Mutex // one change at a time
	refused uint64     // the newest version that did not compile here
	why     error
	limits  *instance.Limits
	silence silence
	redis   failure.Outages
	knows   chan struct{} // closed once there is a page
}

// readTimeout bounds reading the rules.
const readTimeout = 2 * time.Second

func newBook(cfg *Config) *book {
	b := &book{cfg: cfg, knows: make(chan struct{}), redis: failure.Outages{Log: cfg.Logger, What: "reading the rules of strict limits from Redis", Kind: failure.Of}}
	if cfg.Rules != nil {
		b.turn(nil, newVersion(0, cfg.Rules), nil)
		return b
	}
	b.reader = &script.Shards{Client: cfg.Redis, Prefix: cfg.Prefix, Shards: 1, Partitions: 1}
	return b
}

// read makes the latest rules the newest ones.
func (b *book) read(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, err := b.reader.Rules(ctx)
	if err != nil {
		return err
	}
	now := b.current.Load()
	latest := p.Latest
	if latest == 0 {
		if now != nil {
			return nil // what was in Redis is lost: an aggregator writes it again
		}
		return b.missing(ctx)
	}
	same := now != nil && now.shards != nil && now.shards.Shards == p.Shards && now.shards.Partitions == p.Partitions
	if same && now.newest.number == latest && !slices.ContainsFunc(now.of, func(v *version) bool { return v != now.newest }) {
		return nil
	}
	v, err := b.fetch(ctx, now, latest)
	if err != nil {
		return err
	}
	shards := &script.Shards{Client: b.cfg.Redis, Prefix: b.cfg.Prefix, Shards: p.Shards, Partitions: p.Partitions}
	if same {
		shards = now.shards
	}
	// Partitions that are behind say so when they are asked. One that has caught up can't say it where
	// its older rules don't ask.
	b.turn(shards, v, make([]*version, p.Partitions))
	return nil
}

// missing is for a Redis without rules, while none are known here. It says nothing about them: it may have
// lost its memory just now, and what is strict must not be taken for what is not. Each aggregator puts
// its rules within seconds, also those without a strict one. Where aggregators live, and put none for a
// minute, they are older than strict limits.
func (b *book) missing(ctx context.Context) error {
	beat, err := b.reader.Beat(ctx)
	if err != nil {
		return err
	}
	if !b.silence.over(beat, time.Now()) {
		return nil
	}
	b.cfg.Logger.Warn("the aggregators put no rules into Redis: they are older than strict limits; no rule is taken to be strict until they do")
	b.turn(nil, nil, nil)
	return nil
}

const (
	silenceIsOver = time.Minute      // with a heartbeat of aggregators
	beatWithin    = 10 * time.Second // of the one before
)

// silence measures how long aggregators have lived without a word about the rules.
type silence struct {
	beat         int64 // the latest one
	since, heard time.Time
}

// over takes in the latest heartbeat; 0 is none.
func (s *silence) over(beat int64, now time.Time) bool {
	if beat == 0 || beat == s.beat {
		return false
	}
	if now.Sub(s.heard) > beatWithin {
		s.since = now
	}
	s.beat, s.heard = beat, now
	return now.Sub(s.since) >= silenceIsOver
}

// fetch returns a version that is known, or that Redis has.
func (b *book) fetch(ctx context.Context, now *page, number uint64) (*version, error) {
	if now != nil && now.known[number] != nil {
		return now.known[number], nil
	}
	if number == b.refused && b.why != nil {
		return nil, b.why
	}
	text, err := b.reader.RulesOf(ctx, number)
	if err != nil {
		return nil, err
	}
	v, err := parseVersion(number, text)
	if err != nil {
		b.refused, b.why = number, err
		b.cfg.Logger.Error("the rules do not compile here; where they are in force, strict limits are in doubt", "version", protocol.RulesNumber(number), "error", err)
		return nil, err
	}
	for _, name := range unknownRules(v.set, b.cfg.OnDoubtOf) {
		b.cfg.Logger.Warn("an answer for the time in doubt is for a rule that is not strict, so it changes nothing: is its name right?", "rule", name)
	}
	return v, nil
}

// unknownRules are the names in of that no strict rule has.
func unknownRules(set *rules.Set, of map[string]OnDoubt) []string {
	strict := set.Strict()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if !slices.ContainsFunc(strict, func(r *rules.Rule) bool { return r.Name == name }) {
			out = append(out, name)
		}
	}
	return out
}

// follow makes a partition's rules those of a version that its owner counts by.
func (b *book) follow(ctx context.Context, partition int32, number uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.current.Load()
	if int(partition) >= len(now.of) {
		return fmt.Errorf("admit: there are %d partitions, not %d", len(now.of), partition+1)
	}
	if v := now.of[partition]; v != nil && v.number == number {
		return nil // another request has
	}
	v, err := b.fetch(ctx, now, number)
	if err != nil {
		return err
	}
	of := slices.Clone(now.of)
	of[partition] = v
	newest := now.newest
	if v.number > newest.number && protocol.SameTopic(v.number, newest.number) {
		newest = v
	}
	b.turn(now.shards, newest, of)
	return nil
}

// turn makes another page the current one. Partitions of which no version is known have the newest.
func (b *book) turn(shards *script.Shards, newest *version, of []*version) {
	p := &page{shards: shards, newest: newest, of: slices.Clone(of), known: map[uint64]*version{}}
	before := b.current.Load()
	for i, v := range p.of {
		if v == nil {
			p.of[i], v = newest, newest
		}
		if v.strict() && !slices.Contains(p.inUse, v) {
			p.inUse = append(p.inUse, v)
		}
		p.known[v.number] = v
	}
	if newest != nil {
		p.known[newest.number] = newest
		b.useInstance(newest, before)
		if len(newest.set.Instance) > 0 {
			p.instance = b.limits
		}
	}
	if shards != nil {
		if p.heard = make([]heard, shards.Shards); before != nil && before.shards == shards {
			p.heard = before.heard
		} else {
			for i := range p.heard {
				p.heard[i] = heard{&sync.Mutex{}, &protocol.Heard{}}
			}
		}
	}
	p.idle = len(p.inUse) == 0 && p.instance == nil
	p.ahead = slices.ContainsFunc(p.inUse, (*version).ahead)
	if b.current.Swap(p) == nil {
		close(b.knows)
	}
}

// useInstance loads the newest rules' limits of this process.
func (b *book) useInstance(newest *version, before *page) {
	switch {
	case before != nil && before.newest == newest:
	case b.limits != nil:
		b.limits.Load(newest.set)
	case len(newest.set.Instance) > 0:
		b.limits = instance.New(newest.set, instance.Options{})
	}
}

// run follows the rules until ctx ends. While Redis is away, or refuses, the last ones stay.
func (b *book) run(ctx context.Context) {
	tick := time.NewTicker(b.cfg.Poll)
	defer tick.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, readTimeout)
		err := b.read(limited)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			b.redis.Failed(0, err)
		default:
			b.redis.Worked(0)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
