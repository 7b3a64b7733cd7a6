package owner

import (
	"time"
)

// Sight is an operator's view of an opened partition.
type Sight struct {
	Keys    int
	Bytes   int64     // of the keys' states and their index
	Durable time.Time // when all that was counted was last known to be durable; zero: never
	Opened  time.Time
	Took    time.Duration // the takeover
	Blown   []string      // rules whose fuse has blown here
}

// Sight returns what operators see of the partition. It must have been opened.
func (p *Partition) Sight() Sight {
	c := p.core
	s := Sight{Opened: c.openedAt, Took: c.took}
	if at := c.durableAt.Load(); at != 0 {
		s.Durable = time.Unix(0, at)
	}
	c.lock()
	defer c.mu.Unlock()
	s.Keys, s.Bytes, s.Blown = c.shard.Keys(), c.shard.Bytes(), c.shard.Judge().BlownRules()
	return s
}

// Reading returns when the fetches of the partition's sources were last answered, the older one, and why there
// is no answer since; nil while all is well. ok is false while a source is not asked for yet.
func (p *progress) Reading() (at time.Time, ok bool, err error) {
	for src := range p.readers {
		r := p.readers[src].Load()
		if r == nil {
			return at, false, nil
		}
		if is := r.Progress(); at.IsZero() || is.At.Before(at) {
			at, err = is.At, is.Err
		}
	}
	return at, true, err
}
