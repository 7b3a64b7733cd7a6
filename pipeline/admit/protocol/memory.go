package protocol

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/event"
)

// Limits of what a shard keeps.
const (
	MaxPermits = 1000 // of a key
	SpentFor   = 5 * event.Second
	// MaxAhead is the distance of a shard's clock ahead of a publisher's above which it is in doubt.
	MaxAhead = event.Minute
)

// Memory is a shard's data in Redis, with its script as methods. The zero value is a Redis that lost its memory, or
// never had one.
type Memory struct {
	Run   string // the process that wrote it last
	Epoch string // of the memory: another one whenever something may have been lost
	Clock event.Micros
	Time  event.Micros // TIME of the last call
	Was   event.Micros // the clock when it was set back

	Partitions map[int32]*Partition
	Keys       map[string]*Key
}

// Partition is a shard's knowledge of a partition of the verdict topic.
type Partition struct {
	Life      string       // another one when permits may have been lost
	Reached   int64        // the offset of the verdict topic to apply next
	Until     event.Micros // until when permits may be granted; 0: not at all
	Some      Grants       // of this life those with a Hold say until when some may be, though Until is over
	Version   uint64       // of the rules
	Forwarded event.Micros // what came before that is forwarded
	Settled   event.Micros // what came before that is counted and applied
	Beat      event.Micros // the publisher's last heartbeat, by its clock
	Forgot    event.Micros // levels are forgotten of which nothing counts then any more
}

// Key is a shard's data about a key.
type Key struct {
	Partition int32
	Clock     event.Micros // when it last granted a permit
	Level     *Level       // nil: nothing is counted
	Permits   []*Permit    // in the order of At
	Spent     map[string]event.Micros
}

// Permit is a permit that is not settled.
type Permit struct {
	ID    string
	At    event.Micros
	Again bool // another question for it may still arrive
	Parts []Part

	Remember event.Micros // how long its id is not granted again once it has ended; 0: see Again
}

// Part is a permit's amount under a limit.
type Part struct {
	Name    string
	Kind    Kind
	Amount  event.Decimal
	Until   event.Micros // of a Window: when it no longer counts
	Hold    event.Micros // until when the action may take
	Returns bool
}

// grants tells whether permits may be granted for what is asked for.
func (part *Partition) grants(q *Ask, clock event.Micros) bool {
	switch some := &part.Some; {
	case part.Until > clock || off.until:
		return true
	case some.Hold == 0 || some.Until <= clock || some.Life != part.Life || some.Rules != q.Version:
		return false
	default:
		return !slices.ContainsFunc(q.Wants, func(w Want) bool { return w.Hold > some.Hold && !off.holds })
	}
}

// Process is the Redis process that a script runs on.
type Process struct {
	Run  string
	Time event.Micros
	New  string // the name of a new epoch, should one begin
}

// enter begins a call: it detects a lost memory, and moves the clock.
func (m *Memory) enter(p Process) event.Micros {
	if m.Epoch == "" || m.Run != p.Run && !off.run {
		m.forget(p)
	}
	if m.Time > 0 && !off.moves {
		m.Clock += max(0, p.Time-m.Time) * 9 / 10
	}
	m.Clock = max(m.Clock, p.Time)
	if off.shardClock {
		m.Clock = p.Time
	}
	m.Time = p.Time
	return m.Clock
}

// forget begins an epoch: permits that were granted in the one before are unknown, all or some.
func (m *Memory) forget(p Process) {
	*m = Memory{Run: p.Run, Epoch: p.New, Clock: m.Clock, Time: m.Time, Was: m.Was, Partitions: m.Partitions, Keys: m.Keys}
	for _, part := range m.Partitions {
		part.Life, part.Until, part.Forwarded, part.Settled = p.New, 0, 0, 0
	}
}

func (m *Memory) partition(p int32) *Partition {
	if m.Partitions == nil {
		m.Partitions = map[int32]*Partition{}
	}
	part := m.Partitions[p]
	if part == nil {
		part = &Partition{Life: m.Epoch}
		m.Partitions[p] = part
	}
	return part
}

func (m *Memory) key(text string, partition int32) *Key {
	if k := m.Keys[text]; k != nil {
		return k
	}
	return &Key{Partition: partition}
}

// keep stores a key, or drops it when there is nothing to keep.
func (m *Memory) keep(text string, k *Key, clock event.Micros) {
	for id, until := range k.Spent {
		if until < clock {
			delete(k.Spent, id)
		}
	}
	if len(k.Permits) == 0 && len(k.Spent) == 0 && (k.Level == nil || k.Level.over(m.forgets(k.Partition, clock))) && k.Clock < clock {
		delete(m.Keys, text)
		return
	}
	if m.Keys == nil {
		m.Keys = map[string]*Key{}
	}
	m.Keys[text] = k
}

// forgets is up to when a partition's levels may be forgotten, by the clock that says less: the shard's may have
// to be set back. See setBack.
func (m *Memory) forgets(partition int32, clock event.Micros) event.Micros {
	if part := m.Partitions[partition]; part != nil && !off.forgets {
		return min(clock, part.Forgot)
	}
	return clock
}

// setBack sets the clock to TIME when it is far ahead of a publisher's, and TIME is not: Redis' clock was wrong
// for a while, and has carried the shard's along. At a tenth of the time the clock would take minutes to be right
// again. It begins an epoch, for moments mean something else now: nothing is granted until the owner has said so.
// No permit is lost, and so nothing is waited for.
func (m *Memory) setBack(p Process, beat event.Micros) {
	to := p.Time
	for _, part := range m.Partitions {
		to = max(to, part.Forgot)
	}
	if m.Clock <= beat+MaxAhead || to > beat+MaxAhead {
		return
	}
	m.Clock, m.Was, m.Epoch = to, max(m.Was, m.Clock), turned(m.Epoch)
	for _, part := range m.Partitions {
		part.Life = turned(part.Life)
		if !off.setBack {
			part.Until, part.Forwarded, part.Settled = 0, 0, 0
		}
	}
}

// turned names what a memory goes on as when its clock was set back. All names of one memory begin alike.
func turned(name string) string {
	first, n, _ := strings.Cut(name, "~")
	count, _ := strconv.Atoi(n) // none is 0
	return first + "~" + strconv.Itoa(count+1)
}

// sameMemory tells whether lives are of one memory, that lost nothing in between.
func sameMemory(a, b string) bool {
	first, _, _ := strings.Cut(a, "~")
	other, _, _ := strings.Cut(b, "~")
	return first == other
}

// over tells whether nothing counts any more. A bucket's rate is not known here, nor how long a limit that is
// gone is in force: it stays as long as its key.
func (l *Level) over(now event.Micros) bool {
	return l.Latest < now && l.Exempt <= now && !slices.ContainsFunc(l.Sections, func(s Section) bool { return s.Level != 0 || s.at(now) > 0 })
}

// now is the key's clock.
func (k *Key) now(clock event.Micros) event.Micros {
	if k.Level != nil && !off.keyClock {
		clock = max(clock, k.Level.Latest)
	}
	return max(clock, k.Clock)
}

func (k *Key) permit(id string) *Permit {
	for _, p := range k.Permits {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// end removes a permit. If another question for it may still arrive, it may not be granted then.
func (k *Key) end(id string, clock event.Micros) {
	if p := k.permit(id); p != nil && (p.Again || p.Remember > 0) {
		k.spend(id, clock, max(SpentFor, p.Remember))
	}
	k.remove(id)
}

func (k *Key) remove(id string) {
	k.Permits = slices.DeleteFunc(k.Permits, func(p *Permit) bool { return p.ID == id })
}

// spend remembers for a time that an id may not be granted any more.
func (k *Key) spend(id string, clock, keep event.Micros) {
	if off.spent {
		return
	}
	if k.Spent == nil {
		k.Spent = map[string]event.Micros{}
	}
	k.Spent[id] = max(k.Spent[id], clock+keep)
}

// weighs returns what a permit holds under a limit, and until when, if that counts now; else nil.
func (l *Limit) weighs(p *Permit, now, settled event.Micros) (*Part, event.Micros) {
	part := p.part(l)
	if part == nil {
		return nil, 0
	}
	if part.Kind == InFlight || part.Returns {
		if part.Hold <= now && (part.Kind == InFlight || settled > part.Hold || off.returnWaits) {
			return nil, 0
		}
	}
	until := l.ends(p, part)
	if part.Kind == Window && until <= now {
		return nil, 0
	}
	return part, until
}

// used sums the count and the permits under way under a limit, by a key's clock.
func (k *Key) used(l *Limit, now, settled event.Micros) float64 {
	s := k.Level.section(l)
	if l.Kind == Bucket {
		return k.bucket(l, s, now, settled)
	}
	sum := s.at(now)
	for _, p := range k.Permits {
		if part, _ := l.weighs(p, now, settled); part != nil {
			sum += float64(part.Amount)
		}
	}
	return sum
}

// bucket is the level that there would be if the events of all permits were counted now, the
// generic cell rate algorithm over the owner's level and the permits by their times.
func (k *Key) bucket(l *Limit, s *Section, now, settled event.Micros) float64 {
	latest, level := event.Micros(math.MinInt64), 0.0
	if s != nil {
		latest, level = k.Level.Latest, float64(s.Level)
	}
	for _, p := range k.Permits {
		part, _ := l.weighs(p, now, settled)
		if part == nil {
			continue
		}
		if p.At > latest {
			level = max(0, level-drainedSince(latest, p.At, l))
			latest = p.At
		}
		level += float64(part.Amount)
	}
	return max(0, level-drainedSince(latest, now, l))
}

func drainedSince(from, to event.Micros, l *Limit) float64 {
	if from == math.MinInt64 || to <= from {
		return 0
	}
	return drained(to-from, l.Rate, l.Per)
}

// part returns the permit's amount under a limit; nil for none.
func (p *Permit) part(l *Limit) *Part {
	for i := range p.Parts {
		if l.is(p.Parts[i].Name) {
			return &p.Parts[i]
		}
	}
	return nil
}

// insert keeps the order of At.
func (k *Key) insert(p *Permit) {
	i, _ := slices.BinarySearchFunc(k.Permits, p, func(a, b *Permit) int { return cmp.Or(cmp.Compare(a.At, b.At), -1) })
	k.Permits = slices.Insert(k.Permits, i, p)
}

// least is the earliest of all partitions' Forwarded; 0 while one of them has not said it.
func (m *Memory) least(partitions int32) event.Micros {
	least := event.Micros(math.MaxInt64)
	for p := range partitions {
		part := m.Partitions[p]
		if part == nil || part.Forwarded == 0 {
			return 0
		}
		least = min(least, part.Forwarded)
	}
	return least
}

// Copy returns a copy that shares nothing with m but levels, which nobody changes.
func (m *Memory) Copy() *Memory {
	c := *m
	c.Partitions, c.Keys = map[int32]*Partition{}, map[string]*Key{}
	for p, part := range m.Partitions {
		one := *part
		c.Partitions[p] = &one
	}
	for text, k := range m.Keys {
		c.Keys[text] = &Key{Partition: k.Partition, Clock: k.Clock, Level: k.Level, Permits: slices.Clone(k.Permits), Spent: maps.Clone(k.Spent)}
	}
	return &c
}
