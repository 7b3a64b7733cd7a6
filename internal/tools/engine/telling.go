package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/rules"
)

// levelsAtOnce is the number of levels that are published between two looks at the number that waits.
const levelsAtOnce = 1000

// tell publishes at once what owners publish now and then: levels, and what keys have left.
func (e *Engine) tell(clock shard.Clock) {
	for more := e.shard.Levels().Waiting(); more; {
		var err error
		more, err = e.shard.Levels().Publish(levelsAtOnce)
		sound(err)
	}
	for due := e.shard.Quotas().Due(true, clock); e.shard.Quotas().Publish(&due, clock); {
	}
}

// Lose counts a permit whose action never told how it ended, as of a moment.
func (e *Engine) Lose(l *protocol.Lost, at event.Micros, out *Outcome) {
	out.reset()
	out.At, e.out = at, out
	value, err := shard.AppendLost(nil, l)
	sound(err)
	clock := shard.Clock{Local: at, Broker: event.NoTime}
	sound(e.shard.Record(shard.Loop, &record.Record{Offset: e.looped, Timestamp: at.Time().UnixMilli(), Value: value}, clock))
	e.looped++
	sound(e.shard.Step(shard.Loop, e.looped, clock))
	e.acknowledge(clock)
}

// Command carries out a command on its key, and where it concerns all keys that contain the key's
// dimensions, on these. An error says what is wrong with the command; then nothing was done.
func (e *Engine) Command(c *shard.CommandRecord, at event.Micros, out *Outcome) error {
	key, err := event.ParseKey([]byte(c.Key))
	if err != nil {
		return err
	}
	if c.Rule != "" && !e.Set.Names(c.Rule) {
		return fmt.Errorf("no rule, and no limit as rule/limit, is called %q", c.Rule)
	}
	c.Key = event.FormatKey(key)
	keys := []string{c.Key}
	if wide(c, key) {
		keys = e.with(keys, key)
	}
	out.reset()
	out.At, e.out = at, out
	clock := shard.Clock{Local: at, Broker: event.NoTime}
	for _, key := range keys {
		sound(e.shard.Command(c, key, at))
		e.acknowledge(clock)
	}
	e.use(key)
	return nil
}

// wide reports whether a command concerns all keys that contain its dimensions, as aggregate.Command says.
func wide(c *shard.CommandRecord, key []event.Dim) bool {
	switch shard.CommandKinds[c.Command] {
	case rules.CommandUnblock, rules.CommandReset:
		return true
	case rules.CommandExempt:
		return c.For > 0 && slices.ContainsFunc(key, func(d event.Dim) bool { return d.Name == "uid" })
	}
	return false
}

// with appends the keys that contain a key's dimensions, but for itself.
func (e *Engine) with(keys []string, key []event.Dim) []string {
	var each [][]byte
	key = slices.SortedFunc(slices.Values(key), func(a, b event.Dim) int { return cmp.Compare(a.Name, b.Name) })
	for _, d := range key {
		each = append(each, event.AppendDim(nil, d.Name, d.Value))
	}
	for part := range shard.Parts {
		keys = e.shard.KeysWith(keys, part, each, event.FormatKey(key))
	}
	return keys
}

// use notes that a key may have a verdict by a command, whatever dimensions the rules' keys have.
func (e *Engine) use(key []event.Dim) {
	var names []string
	for _, d := range key {
		names = append(names, d.Name)
	}
	slices.Sort(names)
	i := slices.IndexFunc(e.shapes, func(s shape) bool { return slices.Equal(s.dims, names) })
	if i < 0 {
		i = len(e.shapes)
		e.shapes = append(e.shapes, shape{dims: names})
	}
	e.shapes[i].used = true
}
