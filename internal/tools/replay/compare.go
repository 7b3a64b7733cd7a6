package replay

import (
	"context"
	"errors"
	"io"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// Comparison counts events by rules, and by others to compare with, in memory. It is for one goroutine.
type Comparison struct {
	// OnBad, unless it is nil, is told of each malformed event.
	OnBad func(*BadRecord)
	// OnChanges, unless it is nil, is told of the verdicts that an event changed under the new rules; they are
	// valid until it returns. Its error ends Read.
	OnChanges func([]verdict.Verdict) error
	// OnEvent, unless it is nil, is called after each event that was counted. Its error ends Read.
	OnEvent func() error

	// OnRecord, unless it is nil, is called before each event is counted. What becomes of it on each of its keys
	// OnStep is told, unless it is nil: old says that it is about the rules to compare with.
	OnRecord func(*Record)
	OnStep   func(step *shard.Stepped, old bool)

	now, old *run // old: nil without rules to compare with
	changes  changes
}

// Compare returns a Comparison of two sets of rules; a nil old one compares with nothing.
func Compare(now, old *rules.Set) *Comparison {
	c := &Comparison{now: newRun(now)}
	if old != nil {
		c.old = newRun(old)
		c.old.engine.Stepped = func(s *shard.Stepped) { c.step(s, true) }
	}
	c.now.engine.Stepped = func(s *shard.Stepped) { c.step(s, false) }
	return c
}

func (c *Comparison) step(s *shard.Stepped, old bool) {
	if c.OnStep != nil {
		c.OnStep(s, old)
	}
}

// Keys counts the keys so far.
func (c *Comparison) Keys() int { return c.now.engine.Keys() }

// Events counts the events so far.
func (c *Comparison) Events() int { return c.now.tally.Events }

// Bad counts the malformed events so far.
func (c *Comparison) Bad() int { return c.now.tally.Bad }

// Bytes is about how much memory the keys of both sets take.
func (c *Comparison) Bytes() int64 {
	n := c.now.engine.Bytes()
	if c.old != nil {
		n += c.old.engine.Bytes()
	}
	return n
}

// Read counts a source's events. It returns nil at the source's end, and when ctx ends.
func (c *Comparison) Read(ctx context.Context, src Source) error {
	for ctx.Err() == nil {
		rec, err := src.Next(ctx)
		if bad, ok := errors.AsType[*BadRecord](err); ok {
			c.now.tally.Bad++
			if c.OnBad != nil {
				c.OnBad(bad)
			}
			continue
		}
		if errors.Is(err, io.EOF) || err != nil && ctx.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		if err := c.apply(rec); err != nil {
			return err
		}
	}
	return nil
}

func (c *Comparison) apply(rec *Record) error {
	if c.OnRecord != nil {
		c.OnRecord(rec)
	}
	c.now.apply(rec)
	if c.old != nil {
		c.old.apply(rec)
		c.changes.add(c.now, c.old)
	}
	if c.OnChanges != nil {
		if err := c.OnChanges(c.now.out.Changes); err != nil {
			return err
		}
	}
	if c.OnEvent != nil {
		return c.OnEvent()
	}
	return nil
}

// Result is the result of a Comparison. In JSON it is the last line of --json.
type Result struct {
	*Tally
	Seconds     float64 `json:"seconds"`
	Interrupted bool    `json:"interrupted,omitempty"`
	Against     *Diff   `json:"against,omitempty"` // nil without rules to compare with
}

// Result returns it. Call it once, after Read; who called knows how long that took.
func (c *Comparison) Result() *Result {
	r := &Result{Tally: c.now.finish()}
	if c.old != nil {
		c.old.finish()
		r.Against = diff(c.now, c.old, &c.changes)
	}
	return r
}
