package publish

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/internal/failure"
)

// lingers is the time for which rules without strict ones are still published: shards must hear that no rule is
// strict any more, or enforcers with older rules would ask in vain.
const lingers = time.Minute

// lookEvery is the interval between looks whether the text is still there: a service that starts without it knows
// nothing, and in Cluster it lies on a node of its own, which no partition may notice.
const lookEvery = 2 * time.Second

// rulesInUse are the rules in force, and their text in Redis.
type rulesInUse struct {
	p       *Publisher
	changed chan struct{} // the text is to be put

	mu      sync.Mutex
	version uint64
	text    []byte         // empty: no rule of the version asks for anything
	holds   []event.Micros // of the strict ones, each once, the shortest first
	before  event.Micros   // the longest of rules before
	until   event.Micros   // by mono: until when rules that are not strict are published
	epochs  map[int]string // of shards
}

func newRulesInUse(p *Publisher) *rulesInUse {
	return &rulesInUse{p: p, changed: make(chan struct{}, 1), epochs: map[int]string{}}
}

func (r *rulesInUse) use(version uint64, text []byte, holds []event.Micros) {
	r.mu.Lock()
	defer r.mu.Unlock()
	holds = slices.Compact(slices.Sorted(slices.Values(holds)))
	if version == 0 && len(holds) > 0 {
		holds = holds[len(holds)-1:] // enforcers may go by other rules, and nobody would see it
	}
	if len(r.holds) > 0 && len(holds) == 0 {
		r.until = r.p.mono() + event.FromDuration(lingers)
	}
	if n := len(r.holds); n > 0 && (version != r.version || !slices.Equal(holds, r.holds)) {
		r.before = max(r.before, r.holds[n-1])
	}
	r.version, r.text, r.holds = version, text, holds
	r.put()
}

// put wakes run.
func (r *rulesInUse) put() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// state returns the version, and whether rules are strict; until is until when others are published.
func (r *rulesInUse) state() (version uint64, strict bool, until event.Micros) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version, len(r.holds) > 0, r.until
}

// held returns the version and its holds.
func (r *rulesInUse) held() protocol.Holds {
	r.mu.Lock()
	defer r.mu.Unlock()
	return protocol.Holds{Rules: r.version, Of: r.holds, Before: r.before}
}

// epoch takes in a shard's epoch: another memory has no rules.
func (r *rulesInUse) epoch(shard int, epoch string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, ok := r.epochs[shard]; ok && before != epoch {
		r.put()
	}
	r.epochs[shard] = epoch
}

// run keeps the rules' text in Redis, also where no rule is strict: enforcers that find nothing cannot
// know that. It is put when there is another one, when Redis is another one, and when it is gone.
func (r *rulesInUse) run(ctx context.Context) {
	pause := failure.NewPause()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
			asked = true
		case <-look.C:
		}
		err := r.keep(ctx, asked)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			r.p.redis.Worked(noPartition)
			pause.Reset()
		default:
			r.p.redis.Failed(noPartition, err)
			r.put()
			pause.Wait(ctx)
		}
	}
}

// keep puts the text, or only if it is not there.
func (r *rulesInUse) keep(ctx context.Context, put bool) error {
	r.mu.Lock()
	version, text := r.version, r.text
	r.mu.Unlock()
	if version == 0 {
		return nil // nobody said yet which rules are in force
	}
	if !put {
		if has, err := r.p.cfg.Redis.HasRules(ctx, version); has || err != nil {
			return err
		}
	}
	return r.p.cfg.Redis.PutRules(ctx, version, text)
}

// noPartition stands for the publisher itself among the partitions that an outage is about.
const noPartition = -1
