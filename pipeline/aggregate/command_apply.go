package aggregate

import (
	"context"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/event"
)

// commandTime is the time that a command has: a broker's, as far as its acknowledgements tell, and no earlier
// than what is counted.
func (p *partition) commandTime() event.Micros {
	p.lock()
	defer p.mu.Unlock()
	clock := p.clock() // the broker's is known since the fence
	return max(clock.Broker, p.shard.Time(clock))
}

// commandSome carries a command out on the first of the keys, for as long as events may be kept waiting, and
// returns how many these were.
func (p *partition) commandSome(c *shard.CommandRecord, keys []string, at event.Micros) (n int, err error) {
	p.lock()
	defer p.mu.Unlock()
	if p.working.Err() != nil {
		return 0, p.changedOwner(c)
	}
	for began := time.Now(); n < len(keys) && (n == 0 || time.Since(began) < sliceTime); n++ {
		if err = p.shard.Command(c, keys[n], at); err != nil {
			break
		}
	}
	if err == nil {
		err = p.perform()
	}
	if err != nil {
		p.die(p.ended(err))
	}
	return n, err
}

// auditFirst puts a command into the audit, and waits until it is durable there.
func (p *partition) auditFirst(ctx context.Context, c *shard.CommandRecord, at event.Micros) error {
	line, err := c.AuditLine(at)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	return p.agg.side.sendAndWait(ctx, p.agg.names.Audit, []byte(c.Key), line)
}
