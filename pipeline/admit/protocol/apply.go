package protocol

import (
	"maps"
	"slices"

	"github.com/tallygate/tallygate/event"
)

// Batch is one call of a publisher: records of one partition of the verdict topic, at offsets [Start, Next), in their
// order.
type Batch struct {
	Partition   int32
	Of          int32 // partitions that the topic has
	Start, Next int64
	Beat        event.Micros // the publisher's clock
	Records     []Record
	Forwarded   Mark // what the partition's owner has forwarded
	Settled     Mark // what is counted, and applied with this batch
	Begin       bool // records are missing, which may have settled permits: none of the partition's is known any more
}

// Mark is a moment by a shard's clock, of an epoch.
type Mark struct {
	Epoch string
	At    event.Micros
}

// Record is one of a Level, a tombstone, a Grants and a Version.
type Record struct {
	Level   *Level
	Gone    string // a tombstone: the key whose level is over
	Grants  *Grants
	Version uint64
}

// Grants names the Redis that may grant permits for a partition, and the end of that right.
type Grants struct {
	Run, Life string
	Until     event.Micros // by the shard's clock

	Hold  event.Micros // only under limits with a hold up to this; 0: under all
	Rules uint64       // and by this version of the rules

	// For who takes over, and in no record of the verdict topic: the version of the rules whose holds all permits
	// have that are out, 0 where others may have been longer; and the longest hold that they may have.
	HoldsOf uint64
	Longest event.Micros
}

// Applied is a shard's answer to a Batch.
type Applied struct {
	OK      bool
	Reached int64
	Run     string
	Epoch   string
	Life    string // of what it knows of the partition
	Clock   event.Micros
	Least   event.Micros // up to when all partitions have forwarded; 0: not known
	Lost    []Lost       // permits that the owner is to count
}

// Lost is a permit whose action never told how it ended.
type Lost struct {
	Key, ID string
	At      event.Micros
	Parts   []Part
}

// maxLost bounds the lost permits in a call.
const maxLost = 100

// Apply applies a batch, if it begins where the one before ended.
func (m *Memory) Apply(p Process, b *Batch) Applied {
	clock := m.enter(p)
	part := m.partition(b.Partition)
	if part.Reached != b.Start && !off.order {
		return Applied{Reached: part.Reached, Run: m.Run, Epoch: m.Epoch, Life: part.Life, Clock: clock}
	}
	m.setBack(p, b.Beat)
	clock = m.Clock
	part.Forgot = max(part.Forgot, min(clock, b.Beat))
	if b.Begin {
		m.begin(b.Partition, part, p)
	}
	for i := range b.Records {
		m.record(b.Partition, part, &b.Records[i], clock)
	}
	part.Reached, part.Beat = b.Next, b.Beat
	if b.Forwarded.Epoch == m.Epoch {
		part.Forwarded = max(part.Forwarded, b.Forwarded.At)
	}
	if b.Settled.Epoch == part.Life {
		part.Settled = max(part.Settled, b.Settled.At)
	}
	return Applied{OK: true, Reached: b.Next, Run: m.Run, Epoch: m.Epoch, Life: part.Life, Clock: clock, Least: m.least(b.Of), Lost: m.sweep(b, part, clock)}
}

// begin forgets the permits of a partition.
func (m *Memory) begin(partition int32, part *Partition, p Process) {
	part.Life, part.Until, part.Settled = p.New, 0, 0
	for _, k := range m.Keys {
		if k.Partition == partition {
			k.Permits = nil
		}
	}
}

// Report notes what a partition of another shard has forwarded.
func (m *Memory) Report(p Process, partition int32, forwarded Mark) Applied {
	clock := m.enter(p)
	if part := m.partition(partition); forwarded.Epoch == m.Epoch {
		part.Forwarded = max(part.Forwarded, forwarded.At)
	}
	return Applied{OK: true, Run: m.Run, Epoch: m.Epoch, Clock: clock}
}

func (m *Memory) record(partition int32, part *Partition, r *Record, clock event.Micros) {
	switch {
	case r.Grants != nil:
		if r.Grants.Run == m.Run && r.Grants.Life == part.Life {
			if part.Some = *r.Grants; part.Some.Hold == 0 {
				part.Until = max(part.Until, r.Grants.Until)
			}
		}
	case r.Level != nil:
		k := m.key(r.Level.Key, partition)
		if k.Level == nil || r.Level.Seq >= k.Level.Seq {
			k.Level = r.Level
		}
		for _, id := range r.Level.Settles {
			k.end(id, clock)
		}
		m.keep(r.Level.Key, k, clock)
	case r.Gone != "":
		k := m.key(r.Gone, partition)
		k.Level = nil
		m.keep(r.Gone, k, clock)
	default:
		part.Version = r.Version // not the greatest: a topic of rules that was created anew counts from the start
	}
}

// sweep removes what is over of a partition's keys, and names lost permits.
func (m *Memory) sweep(b *Batch, part *Partition, clock event.Micros) (lost []Lost) {
	for _, text := range slices.Sorted(maps.Keys(m.Keys)) {
		k := m.Keys[text]
		if k.Partition != b.Partition {
			continue
		}
		for _, p := range slices.Clone(k.Permits) {
			switch over, counts := p.lost(clock, part.Settled); {
			case !over:
			case counts && !off.settledAt:
				if len(lost) < maxLost {
					lost = append(lost, Lost{Key: text, ID: p.ID, At: p.At, Parts: p.Parts})
					k.name(p)
				}
			default:
				k.end(p.ID, clock)
			}
		}
		m.keep(text, k, clock)
	}
	return lost
}

// name notes that a permit was named as lost. The owner counts it by its id, so the id is not to be
// granted again when it is settled.
func (k *Key) name(p *Permit) {
	named := *p
	named.Again = true
	k.Permits[slices.Index(k.Permits, p)] = &named
}

// lost tells whether a permit's action should have ended in all of its parts, and whether the owner
// is to count one of them.
func (p *Permit) lost(clock, settled event.Micros) (over, counts bool) {
	for i := range p.Parts {
		part := &p.Parts[i]
		switch {
		case part.Hold > clock:
			return false, false
		case part.Kind == InFlight:
		case settled <= part.Hold:
			return false, false
		case !part.Returns:
			counts = true
		}
	}
	return true, counts
}
