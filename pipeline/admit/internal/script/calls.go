package script

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

// maxLost bounds the lost permits in a call.
const maxLost = 100

// answerSize is the bytes of an answer's numbers, of which the first one has one, and the others eight.
const answerSize = 1 + 10*8

// answerOf reads an answer: one string, or a list from a Redis that has no MessagePack.
func answerOf(q *protocol.Ask, reply []any) (protocol.Answer, error) {
	var n [11]int64
	r := replies{list: reply}
	if packed, ok := reply[0].(string); ok && len(packed) >= answerSize {
		n[0] = int64(packed[0])
		for i := range n[1:] {
			n[1+i] = int64(binary.BigEndian.Uint64([]byte(packed[1+8*i : 9+8*i])))
		}
		r = replies{packed: packed[answerSize:]}
	} else {
		for i := range n {
			n[i] = r.number()
		}
	}
	a := protocol.Answer{
		Status: protocol.Status(n[0]), Now: event.Micros(n[1]), Clock: event.Micros(n[2]), Version: uint64(n[3]), At: event.Micros(n[4]), Decides: int(n[5]),
		Used: event.Decimal(n[6]), Limit: event.Decimal(n[7]), RetryAt: event.Micros(n[8]), ResetAt: event.Micros(n[9]),
	}
	if n := n[10]; n > 0 && n <= int64(len(q.IDs)) {
		a.IDs = q.IDs[:n]
	}
	for r.more() {
		a.IDs = append(a.IDs, r.text())
	}
	return a, r.err("admit")
}

// question is an Ask as the script reads it. Clients may send a command again by themselves, after an
// error: what they sent before may still arrive. They ask for its bytes each time, and so from the second
// time on it is one that was asked again.
type question struct {
	ask  protocol.Ask
	name string // of a new epoch
	json bool
}

// MarshalBinary implements encoding.BinaryMarshaler. It never fails.
func (q *question) MarshalBinary() ([]byte, error) {
	a := &q.ask
	l := newList(q.json, 9+len(a.IDs)+14*len(a.Wants))
	l.text(strconv.Itoa(int(a.Partition))) // the script makes a name of it
	l.text(a.Key)
	l.number(int64(a.Before))
	l.number(int64(a.Version))
	l.text(q.name)
	how := int64(0)
	if a.Exempt {
		how = 1
	}
	if a.Again {
		how += 2
	}
	if a.Renews {
		how += 4
	}
	how += 8 * int64(a.Remember)
	a.Again = true
	l.number(how)
	l.number(int64(len(a.IDs)))
	for _, id := range a.IDs {
		l.text(id)
	}
	l.number(int64(len(a.Wants)))
	for i := range a.Wants {
		l.want(&a.Wants[i])
	}
	return l.bytes(), nil
}

// want appends a limit's numbers, its tiers and its ends.
func (l *list) want(w *protocol.Want) {
	l.text(w.Name)
	l.number(int64(w.Kind))
	l.number(int64(w.Amount))
	l.number(int64(w.Threshold))
	l.number(int64(w.Lowest))
	l.number(int64(w.Hold))
	l.flag(w.Returns)
	l.number(int64(len(w.Tiers)))
	l.number(int64(len(w.Ends)))
	l.text(spaced(w.Formers))
	shape := [4]int64{int64(w.Grain), int64(w.Offset), int64(w.Keeps), int64(w.Lasts)}
	if w.Kind == protocol.Bucket {
		shape = [4]int64{int64(w.Rate), int64(w.Per), 0, 0}
	}
	for _, x := range shape {
		l.number(x)
	}
	for _, t := range w.Tiers {
		l.text(strconv.FormatUint(t.ID, 10))
		l.number(int64(t.Threshold))
	}
	for _, end := range w.Ends {
		l.number(int64(end))
	}
}

// spaced is a list of names in which the script looks for one with a space on both sides.
func spaced(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " " + strings.Join(names, " ") + " "
}

// Cancel ends permits, and returns the shard's clock.
func (s *Shards) Cancel(ctx context.Context, partition int32, key string, ids []string) (event.Micros, error) {
	args := append(make([]any, 0, 3+len(ids)), partition, key, s.newName())
	for _, id := range ids {
		args = append(args, id)
	}
	reply, err := s.call(ctx, s.Shard(partition), opCancel, func(*process) []any { return args })
	if err != nil {
		return 0, err
	}
	r := replies{list: reply}
	clock := event.Micros(r.number())
	return clock, r.err("cancel")
}

// Apply applies a batch.
func (s *Shards) Apply(ctx context.Context, b *protocol.Batch) (protocol.Applied, error) {
	begin := 0
	if b.Begin {
		begin = 1
	}
	args := append(make([]any, 0, 13+4*len(b.Records)), b.Partition, s.Partitions, s.Shards, b.Start, b.Next, int64(b.Beat), s.newName(), begin,
		b.Forwarded.Epoch, int64(b.Forwarded.At), b.Settled.Epoch, int64(b.Settled.At), maxLost)
	reply, err := s.call(ctx, s.Shard(b.Partition), opApply, func(p *process) []any {
		all := args
		for i := range b.Records {
			all = appendRecord(all, &b.Records[i], p.json)
		}
		return all
	})
	if err != nil {
		return protocol.Applied{}, err
	}
	return applied("apply", reply)
}

func appendRecord(args []any, r *protocol.Record, json bool) []any {
	switch {
	case r.Level != nil:
		return append(args, "L", r.Level.Key, level(r.Level, json))
	case r.Gone != "":
		return append(args, "L", r.Gone, "")
	case r.Grants != nil:
		return append(args, "G", r.Grants.Run, r.Grants.Life, int64(r.Grants.Until), int64(r.Grants.Hold), r.Grants.Rules)
	default:
		return append(args, "V", r.Version)
	}
}

// level is a Level as the script reads it.
func level(v *protocol.Level, json bool) []byte {
	l := newList(json, 6+len(v.Settles)+8*len(v.Sections))
	l.number(v.Seq)
	l.number(int64(v.Latest))
	l.number(int64(v.Exempt))
	l.number(int64(len(v.Settles)))
	for _, id := range v.Settles {
		l.text(id)
	}
	l.number(int64(len(v.Sections)))
	for i := range v.Sections {
		s := &v.Sections[i]
		l.text(s.Name)
		l.text(strconv.FormatUint(s.Tier, 10))
		l.number(int64(s.Level))
		l.number(int64(2 * len(s.Steps)))
		for _, step := range s.Steps {
			l.number(int64(step.Until))
			l.number(int64(step.Amount))
		}
	}
	return l.bytes()
}

// Report tells a shard up to when a partition of another one has forwarded.
func (s *Shards) Report(ctx context.Context, shard int, partition int32, forwarded protocol.Mark) (protocol.Applied, error) {
	reply, err := s.call(ctx, shard, opReport, func(*process) []any {
		return []any{partition, s.newName(), forwarded.Epoch, int64(forwarded.At)}
	})
	if err != nil {
		return protocol.Applied{}, err
	}
	return applied("report", reply)
}

func applied(what string, reply []any) (protocol.Applied, error) {
	r := replies{list: reply}
	a := protocol.Applied{OK: r.number() == 1, Reached: r.number(), Clock: event.Micros(r.number()), Least: event.Micros(r.number()), Run: r.text(), Epoch: r.text(), Life: r.text()}
	for len(r.list) > 0 {
		a.Lost = append(a.Lost, r.lost())
	}
	return a, r.err(what)
}

// newName names an epoch, should one begin. It is never the name of another one.
func (s *Shards) newName() string {
	if s.names != nil {
		return s.names()
	}
	return strconv.FormatUint(rand.Uint64(), 36)
}

// replies takes values off a reply.
type replies struct {
	list   []any
	packed string // instead of a list: texts in MessagePack
	bad    bool
}

func (r *replies) more() bool { return !r.bad && (r.packed != "" || len(r.list) > 0) }

func (r *replies) next() any {
	if len(r.list) == 0 {
		r.bad = true
		return nil
	}
	x := r.list[0]
	r.list = r.list[1:]
	return x
}

func (r *replies) number() int64 {
	n, ok := r.next().(int64)
	r.bad = r.bad || !ok
	return n
}

func (r *replies) text() string {
	if r.packed != "" {
		return r.unpackText()
	}
	s, ok := r.next().(string)
	r.bad = r.bad || !ok
	return s
}

func (r *replies) lost() (l protocol.Lost) {
	list, ok := r.next().([]any)
	in := replies{list: list, bad: !ok}
	l.Key, l.ID, l.At = in.text(), in.text(), event.Micros(in.number())
	for len(in.list) > 0 {
		l.Parts = append(l.Parts, in.permitPart())
	}
	r.bad = r.bad || in.bad
	return l
}

func (r *replies) err(what string) error {
	if r.bad {
		return fmt.Errorf("script: %s: an unexpected reply of Redis", what)
	}
	return nil
}
