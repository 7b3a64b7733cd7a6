package owner

import (
	"context"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// commands carries out operators' commands between two events. Its exported methods are a
// Partition's, and may be called by any goroutine.
type commands struct {
	*core
	out      *outbox
	progress *progress
}

// CarryOut puts a command into the audit, applies it to all of its keys, and returns when its
// effects are durable and published. After an error it may have taken effect on some of the keys.
func (c *commands) CarryOut(ctx context.Context, rec *shard.CommandRecord) (CommandResult, error) {
	at := c.time()
	if err := c.audit(ctx, rec, at); err != nil {
		return CommandResult{}, c.notYet(ctx, rec, "it is not in the audit yet, and nothing was done", err)
	}
	keys := rec.AllKeys()
	done := c.out.waits.await(rec.ID, len(keys))
	defer c.out.waits.remove(rec.ID)
	for left := keys; len(left) > 0; {
		n, err := c.some(rec, left, at)
		if err != nil && c.ctx.Err() != nil {
			return CommandResult{}, c.changedOwner(rec)
		}
		if err != nil {
			return CommandResult{}, err
		}
		if left = left[n:]; len(left) > 0 && c.out.changelog.AwaitRoom(ctx) != nil {
			return CommandResult{}, c.notYet(ctx, rec, fmt.Sprintf("it was carried out on %d of %d keys: repeat it to do the rest", len(keys)-len(left), len(keys)), ctx.Err())
		}
	}
	select {
	case so := <-done:
		return so, nil
	case <-c.ctx.Done():
		return CommandResult{}, c.changedOwner(rec)
	case <-ctx.Done():
		return CommandResult{}, c.notYet(ctx, rec, "it is not acknowledged yet, and may still take effect", ctx.Err())
	}
}

// KeysWith returns the partition's keys that contain the dimensions of a key, but for the key itself. It
// searches in slices between events.
func (c *commands) KeysWith(ctx context.Context, key []event.Dim) (out []string, err error) {
	var each [][]byte // name=value, as in keys' texts
	for _, d := range key {
		each = append(each, event.AppendDim(nil, d.Name, d.Value))
	}
	for part := range shard.Parts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out = c.keysOf(part, each, event.FormatKey(key), out)
	}
	return out, nil
}

func (c *commands) keysOf(part int, dims [][]byte, not string, out []string) []string {
	c.lock()
	defer c.mu.Unlock()
	return c.shard.KeysWith(out, part, dims, not)
}

// InFlight returns on how many keys commands are not done yet. ok reports whether there are
// commands.
func (c *commands) InFlight() (keys int, ok bool) { return c.out.waits.open() }

// time returns the time of a command: a broker's, as far as acknowledgements tell it, but not
// earlier than what is counted.
func (c *commands) time() event.Micros {
	c.lock()
	defer c.mu.Unlock()
	clock := c.clock() // the fence's acknowledgement told the broker's
	return max(clock.Broker, c.shard.Log().Time(clock))
}

// some applies a command to the first of the keys, for as long as events may be delayed, and
// returns to how many.
func (c *commands) some(rec *shard.CommandRecord, keys []string, at event.Micros) (n int, err error) {
	c.lock()
	defer c.mu.Unlock()
	if c.working.Err() != nil {
		return 0, c.changedOwner(rec)
	}
	for began := time.Now(); n < len(keys) && (n == 0 || time.Since(began) < sliceTime); n++ {
		if err = c.shard.Command(rec, keys[n], at); err != nil {
			break
		}
	}
	if err == nil {
		err = c.out.perform()
	}
	if err != nil {
		c.fail(c.ended(err))
	}
	return n, err
}

// audit puts a command into the audit, and waits until it is durable there.
func (c *commands) audit(ctx context.Context, rec *shard.CommandRecord, at event.Micros) error {
	lines, err := rec.AuditLines(at)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	for _, line := range lines {
		if err := c.env.Aux.SendAndWait(ctx, c.env.Names.Audit, rec.AuditKey(), line); err != nil {
			return err
		}
	}
	return nil
}

// changedOwner reports the progress of a command whose partition has ended here. The next owner knows of the events,
// but not of commands, and does not continue it.
func (c *commands) changedOwner(rec *shard.CommandRecord) error {
	keys := len(rec.AllKeys())
	if keys == 1 {
		return fmt.Errorf("partition %d changed its owner: check whether the command took effect, or repeat it", c.id)
	}
	return fmt.Errorf("partition %d changed its owner: the command is durable on %d of %d keys, and may be on more: repeat it to do the rest",
		c.id, keys-c.out.waits.left(rec.ID, keys), keys)
}

// notYet reports the progress of a command that was not done in time, and its partition's lag.
func (c *commands) notYet(ctx context.Context, rec *shard.CommandRecord, far string, err error) error {
	if c.ctx.Err() != nil && ctx.Err() == nil {
		return c.changedOwner(rec)
	}
	return fmt.Errorf("the command waits for Kafka: %s; %s: %w", far, c.progress.Lateness(time.Now()), err)
}
