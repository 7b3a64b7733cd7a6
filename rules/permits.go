package rules

import (
	"slices"

	"github.com/tallygate/tallygate/event"
)

// Permits finds the keys that events' permits were granted for. It keeps buffers between events; each
// goroutine has one of its own.
type Permits struct {
	lateness event.Micros
	apis     apiCache
	keys     eventKeys
	places   []int // of each rule: the place of its key in keys
	found    []PermitKey
}

// PermitKey is a key that an event's permit was granted for.
type PermitKey struct {
	Key     []byte       // its text; valid until the next Keys
	Hash    uint32       // what its partition follows from, as Work.Hash
	At      event.Micros // when it was granted
	TooLate bool         // that is too long ago: strict limits do not count the event
}

// NewPermits returns a Permits for the set; nil when no rule is strict.
func (s *Set) NewPermits() *Permits {
	rules := s.Strict()
	if len(rules) == 0 {
		return nil
	}
	p := &Permits{lateness: s.MaxLateness}
	index := newAPIIndex[*Rule]()
	var dims [][]string
	for i, r := range rules {
		r.indexInto(index, i)
		place := slices.IndexFunc(dims, func(d []string) bool { return slices.Equal(d, r.Shape.Dims) })
		if place < 0 {
			place = len(dims)
			dims = append(dims, r.Shape.Dims)
		}
		p.places = append(p.places, place)
	}
	p.apis, p.keys.of = newAPICache(index, requestSlots), make([]shapeKey, len(dims))
	return p
}

// Keys returns the keys that the event's permit was granted for: those that it names, or those of all
// strict rules that are for the event's API, whatever else they ask for: the action may have ended
// otherwise than it began. A permit from an hour ahead of the broker's time is none, and neither is one
// whose time is not known; ahead tells that. What is returned holds until the next Keys.
func (p *Permits) Keys(e *event.Event, broker event.Micros) (keys []PermitKey, ahead bool) {
	p.found = p.found[:0]
	if e.Permit.ID == "" {
		return nil, false
	}
	for i := range e.Permit.Keys {
		k := &e.Permit.Keys[i]
		dims, err := event.ParseKey([]byte(k.Key))
		if err != nil || event.FormatKey(dims) != k.Key {
			continue // no key has this text
		}
		hash := event.Murmur2(k.Key)
		if uid := slices.IndexFunc(dims, func(d event.Dim) bool { return d.Name == "uid" }); uid >= 0 {
			hash = event.Murmur2(dims[uid].Value)
		}
		ahead = p.add([]byte(k.Key), hash, k.At, broker) || ahead
	}
	if len(e.Permit.Keys) > 0 {
		return p.found, ahead
	}
	p.keys.event++
	for _, entry := range p.apis.find(e.API) {
		key := &p.keys.of[p.places[entry.order]]
		if key.event == p.keys.event {
			continue // of another rule, too
		}
		if p.keys.make(key, e, entry.rule.Shape); !key.there {
			continue
		}
		hash := event.Murmur2(key.text)
		if entry.rule.Shape.HasUID {
			hash = event.Murmur2(e.UID)
		}
		ahead = p.add(key.text, hash, e.Permit.At, broker) || ahead
	}
	return p.found, ahead
}

// add reports whether the time is too far ahead, or not known.
func (p *Permits) add(key []byte, hash uint32, at, broker event.Micros) (ahead bool) {
	if at == event.NoTime || at == 0 || broker != event.NoTime && at > broker+event.Hour {
		return true
	}
	late := broker != event.NoTime && at < broker-p.lateness
	p.found = append(p.found, PermitKey{key, hash, min(max(at, event.MinTime), event.MaxTime), late})
	return false
}
