// Package hotkeys finds the keys that take much of a stream, in bounded memory and for a few
// nanoseconds per event.
//
// It is Space-Saving (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k
// Elements in Data Streams, 2005) over a sample of the stream, with counts that decay. A key with
// more than 1/64 of the sampled weight is always among those kept. A reported share is never more
// than the key had in the sample. Nothing here reads a clock.
package hotkeys

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"math"
	"slices"

	"github.com/tallygate/tallygate/event"
)

const (
	// Slots is the number of keys of a Sketch.
	Slots = 64

	// HalfLife is after how long an event counts half. After a minute it counts an eighth.
	HalfLife = 20 * event.Second

	// maxKey bounds the kept keys, in bytes. A longer key counts in the total only.
	maxKey = 1 << 10

	// busy and idle bound the samples per Tick: enough to distinguish a tenth from a ninth within
	// seconds, and few enough to cost nothing.
	busy, idle = 128, 32

	maxStride = 1 << 16
)

// Sketch follows one stream. Make it with New. It is not safe for concurrent use.
type Sketch struct {
	skip   int // events to go until the next sample
	stride int // mean distance of samples, and the weight of each
	rng    uint64
	taken  int // samples since the last Tick

	// A key had at least count-over of the sample, and at most count.
	seed   maphash.Seed
	prints [Slots]uint64 // hashes of the keys; 0 is a free slot
	keys   [Slots][]byte
	count  [Slots]float64
	over   [Slots]float64
	total  float64 // decayed weight of all events

	began, ticked event.Micros // NoTime before the first Tick
}

// Key is a key with its part of the stream.
type Key struct {
	Text  []byte  // a copy
	Share float64 // of the stream's events, from 0 to 1; never too high for the sample
	Rate  float64 // events per second
}

// New returns an empty Sketch. The seed determines its random choices.
func New(seed uint64) *Sketch {
	return &Sketch{stride: 1, rng: seed | 1, seed: maphash.MakeSeed(), began: event.NoTime, ticked: event.NoTime}
}

// Touch counts one event of a key. It is small enough to be inlined: all but a few calls only count
// down.
func (s *Sketch) Touch(key []byte) {
	if s.skip--; s.skip < 0 {
		s.sample(key)
	}
}

// sample counts an event for all events since the last sample. The distance to the next is random:
// with a fixed one, a periodic stream would always show the same keys.
func (s *Sketch) sample(key []byte) {
	weight := float64(s.stride)
	s.total += weight
	s.put(key, weight)
	if s.taken++; s.taken >= busy && s.stride < maxStride {
		s.stride, s.taken = 2*s.stride, 0
	}
	s.rng ^= s.rng << 13
	s.rng ^= s.rng >> 7
	s.rng ^= s.rng << 17
	s.skip = int(s.rng % uint64(2*s.stride-1)) // stride-1 on average
}

func (s *Sketch) put(key []byte, weight float64) {
	if len(key) > maxKey {
		return
	}
	print := max(maphash.Bytes(s.seed, key), 1)
	for i, p := range s.prints {
		if p == print && bytes.Equal(s.keys[i], key) {
			s.count[i] += weight
			return
		}
	}
	least, lowest := 0, s.count[0]
	for i, c := range s.count {
		if c < lowest {
			least, lowest = i, c
		}
	}
	s.prints[least] = print
	s.keys[least] = append(s.keys[least][:0], key...)
	s.count[least], s.over[least] = lowest+weight, lowest
}

// Tick makes counts decay up to now. Call it about once a second; more calls sample more.
func (s *Sketch) Tick(now event.Micros) {
	if s.ticked == event.NoTime {
		s.began, s.ticked = now, now
		return
	}
	if now <= s.ticked {
		return // the clock was set back
	}
	f := keeps(now - s.ticked)
	s.ticked = now
	s.total *= f
	for i := range s.count {
		s.count[i] *= f
		s.over[i] *= f
	}
	if s.taken < idle && s.stride > 1 {
		s.stride /= 2
		s.skip = min(s.skip, 2*s.stride)
	}
	s.taken = 0
}

// keeps is the remaining part of a count after some time.
func keeps(d event.Micros) float64 { return math.Exp2(-float64(d) / float64(HalfLife)) }

// Rate returns the recent number of events per second.
func (s *Sketch) Rate(now event.Micros) float64 { return s.total * s.perSecond(now) }

// perSecond turns a decayed weight into events per second: a steady stream of one per second weighs
// the integral of keeps over its age.
func (s *Sketch) perSecond(now event.Micros) float64 {
	if s.began == event.NoTime || now <= s.began {
		return 0
	}
	now = max(now, s.ticked)
	mean := float64(HalfLife) / math.Ln2 / float64(event.Second)
	return keeps(now-s.ticked) / (mean * (1 - keeps(now-s.began)))
}

// Hot returns the keys with at least this share of the events, the hottest first.
func (s *Sketch) Hot(now event.Micros, share float64) []Key {
	if s.total == 0 {
		return nil
	}
	var hot []Key
	for i, key := range s.keys {
		if sure := s.count[i] - s.over[i]; sure > 0 && sure >= share*s.total {
			hot = append(hot, Key{bytes.Clone(key), sure / s.total, sure * s.perSecond(now)})
		}
	}
	slices.SortFunc(hot, func(a, b Key) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), bytes.Compare(a.Text, b.Text))
	})
	return hot
}
