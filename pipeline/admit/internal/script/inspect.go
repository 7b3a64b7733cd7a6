package script

import (
	"context"
	"strconv"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

// Inspect returns what a shard keeps of one partition and one key of it, and the process that it runs
// on. It changes nothing, and sees no ids that have ended.
func (s *Shards) Inspect(ctx context.Context, partition int32, key string) (*protocol.Memory, protocol.Process, error) {
	shard := s.Shard(partition)
	reply, err := s.call(ctx, shard, opInspect, func(*process) []any { return []any{partition, key} })
	if err != nil {
		return nil, protocol.Process{}, err
	}
	p, err := s.process(ctx, shard)
	if err != nil {
		return nil, protocol.Process{}, err
	}
	r := replies{list: reply}
	is := protocol.Process{Run: p.run, Time: event.Micros(r.number()), New: "inspected"}
	m := &protocol.Memory{Partitions: map[int32]*protocol.Partition{}, Keys: map[string]*protocol.Key{}}
	if in := r.part(); in != nil {
		m.Clock, m.Time, m.Run, m.Epoch = event.Micros(in.number()), event.Micros(in.number()), in.text(), in.text()
		r.bad = r.bad || in.bad
	}
	if in := r.part(); in != nil {
		part := &protocol.Partition{
			Until: event.Micros(in.number()), Version: uint64(in.number()), Settled: event.Micros(in.number()), Beat: event.Micros(in.number()),
			Forwarded: event.Micros(in.number()), Reached: in.number(), Life: in.text(),
		}
		if len(in.list) > 0 {
			part.Forgot = event.Micros(in.number())
		}
		if len(in.list) > 0 {
			part.Some = protocol.Grants{Until: event.Micros(in.number()), Hold: event.Micros(in.number()), Life: in.text(), Rules: uint64(in.number())}
		}
		m.Partitions[partition] = part
		r.bad = r.bad || in.bad
	}
	if in := r.part(); in != nil {
		m.Keys[key] = in.key(partition, key)
		r.bad = r.bad || in.bad
	}
	return m, is, r.err("inspect")
}

// part takes a list that is not empty.
func (r *replies) part() *replies {
	list, ok := r.next().([]any)
	if r.bad = r.bad || !ok; len(list) == 0 {
		return nil
	}
	return &replies{list: list}
}

// key takes a key's list, as layout.lua describes it.
func (r *replies) key(partition int32, text string) *protocol.Key {
	k := &protocol.Key{Partition: partition, Clock: event.Micros(r.number())}
	l := &protocol.Level{Key: text, Seq: r.number(), Latest: event.Micros(r.number()), Exempt: event.Micros(r.number())}
	r.number() // when the sweep looks at it
	for range r.number() {
		l.Sections = append(l.Sections, r.section())
	}
	if l.Seq > 0 || len(l.Sections) > 0 {
		k.Level = l
	}
	for len(r.list) > 0 && !r.bad {
		p := &protocol.Permit{ID: r.text(), At: event.Micros(r.number())}
		if keeps := event.Micros(r.number()); keeps > 1 {
			p.Remember = keeps
		} else {
			p.Again = keeps == 1
		}
		for range r.number() {
			p.Parts = append(p.Parts, r.permitPart())
		}
		k.Permits = append(k.Permits, p)
		k.Clock = max(k.Clock, p.At)
	}
	return k
}

func (r *replies) section() (s protocol.Section) {
	var err error
	s.Name = r.text()
	s.Tier, err = strconv.ParseUint(r.text(), 10, 64)
	r.bad = r.bad || err != nil
	s.Level = event.Decimal(r.number())
	for n := r.number(); n > 1 && !r.bad; n -= 2 {
		s.Steps = append(s.Steps, protocol.Step{Until: event.Micros(r.number()), Amount: event.Decimal(r.number())})
	}
	return s
}

func (r *replies) permitPart() protocol.Part {
	return protocol.Part{
		Name: r.text(), Kind: protocol.Kind(r.number()), Amount: event.Decimal(r.number()),
		Until: event.Micros(r.number()), Hold: event.Micros(r.number()), Returns: r.number() == 1,
	}
}
