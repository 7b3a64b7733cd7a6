package admit

import (
	"fmt"
	"sync"
	"time"

	"github.com/tallygate/tallygate/event"
)

const (
	maxKept  = 16_384
	leastFor = time.Minute
)

// kept are permits that somebody outside holds by their tokens, as far as this process holds something
// for them.
type kept struct {
	mu  sync.Mutex
	all map[string]keptPermit
}

type keptPermit struct {
	permit *Permit
	ends   *time.Timer
}

// keep keeps a permit, for a time at most.
func (k *kept) keep(p *Permit, within time.Duration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.all) >= maxKept {
		return fmt.Errorf("admit: this process holds %d permits already: end those that are over", maxKept)
	}
	if k.all == nil {
		k.all = map[string]keptPermit{}
	}
	name := p.a.newID()
	p.change().kept = name
	k.all[name] = keptPermit{p, time.AfterFunc(within, p.Leave)}
	return nil
}

func (k *kept) find(name string) *Permit {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.all[name].permit
}

func (k *kept) drop(name string) {
	if name == "" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if one, ok := k.all[name]; ok {
		one.ends.Stop()
		delete(k.all, name)
	}
}

// Hold returns the longest hold of the strict rules in force, and at least a minute.
func (a *Admitter) Hold() time.Duration {
	longest := event.FromDuration(leastFor)
	if p := a.book.current.Load(); p != nil {
		for _, v := range p.inUse {
			for _, l := range v.limits {
				longest = max(longest, l.Shape.Hold)
			}
		}
	}
	return longest.Duration()
}
