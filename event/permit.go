package event

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Permit admitted an event's action under strict limits. The zero value is none.
type Permit struct {
	ID string // "" for none

	// At is the time of the grant, for all keys; it is not looked at when there are Keys. NoTime when neither is
	// known.
	At Micros
	// Keys are the keys that it was granted for, when it was at different moments: at most
	// MaxPermitKeys, all different.
	Keys []PermitKey
}

// PermitKey is one of the keys that a permit was granted for.
type PermitKey struct {
	Key string // its text
	At  Micros // when it was granted
}

const (
	// MaxPermitKeys bounds the keys of a Permit. What is beyond is left out, and so are keys whose JSON takes more
	// than MaxText bytes: their permits are not settled by the event.
	MaxPermitKeys = 16

	badMoment = NoTime + 1 // of a key in permit_at: until the object ends, a later one may be good
)

// read reads when the permit was granted: a time for all keys, or an object of times by key.
// The last of several permit_at counts, and of several equal keys.
func (p *Permit) read(d *Decoder) bool {
	d.forgive(fieldPermitAt)
	p.At, p.Keys = NoTime, nil
	var t token
	if d.scan.peek() != '{' {
		if !d.scan.value(&t) {
			return false
		}
		d.lately = d.lately || t.seconds()
		var good bool
		if p.At, good = momentOf(&t); !good {
			d.mistake(fieldPermitAt, "", ReasonPermit, t.at, expectedTime)
		}
		return true
	}
	start := d.scan.i
	more, ok := d.scan.open('}')
	for more && ok {
		key, named := d.scan.name()
		if !named {
			return false
		}
		if ok = d.scan.value(&t); ok {
			if !d.tooLarge() {
				d.lately = d.lately || t.seconds()
				p.setKey(key, &t)
			}
			more, ok = d.scan.next('}')
		}
	}
	if slices.ContainsFunc(p.Keys, func(k PermitKey) bool { return k.At == badMoment }) {
		d.mistake(fieldPermitAt, "", ReasonPermit, start, "the value of a key: "+expectedTime)
	}
	return ok
}

func (p *Permit) setKey(key string, t *token) {
	if !fitsPermit(key) {
		return
	}
	at, ok := momentOf(t)
	if !ok {
		at = badMoment
	}
	i := slices.IndexFunc(p.Keys, func(k PermitKey) bool { return k.Key == key })
	switch {
	case i >= 0 && at == NoTime:
		p.Keys = slices.Delete(p.Keys, i, i+1)
	case i >= 0:
		p.Keys[i].At = at
	case at != NoTime && len(p.Keys) < MaxPermitKeys:
		p.Keys = append(p.Keys, PermitKey{key, at})
	}
}

// fitsPermit reports whether a key's text is one that a Permit may have.
func fitsPermit(key string) bool { return key != "" && fits(key, MaxText, MaxText/escaped) }

func appendPermit(dst []byte, start int, p *Permit) []byte {
	dst = appendText(dst, start, "permit", p.ID)
	if len(p.Keys) == 0 {
		return appendMoment(dst, start, "permit_at", p.At)
	}
	dst = append(appendName(dst, start, "permit_at"), '{')
	inside := len(dst)
	for _, k := range p.Keys {
		if k.At == NoTime {
			continue
		}
		if len(dst) > inside {
			dst = append(dst, ',')
		}
		dst = append(AppendString(dst, k.Key), ':', '"')
		dst = append(k.At.AppendTo(dst), '"')
	}
	return append(dst, '}')
}

func (p *Permit) isCanonical() bool {
	return fits(p.ID, MaxID, MaxID) && len(p.Keys) <= MaxPermitKeys &&
		!slices.ContainsFunc(p.Keys, func(k PermitKey) bool { return !fitsPermit(k.Key) })
}

// canonicalize shares no changed memory with what p was copied from.
func (p *Permit) canonicalize() {
	if p.ID == "" || p.isCanonical() {
		return
	}
	p.ID = canonicalID(p.ID)
	kept := make([]PermitKey, 0, MaxPermitKeys)
	for _, k := range p.Keys {
		k.Key = validText(k.Key)
		if i := slices.IndexFunc(kept, func(o PermitKey) bool { return o.Key == k.Key }); i >= 0 {
			kept[i].At = k.At
		} else if fitsPermit(k.Key) && len(kept) < MaxPermitKeys {
			kept = append(kept, k)
		}
	}
	p.Keys = kept
}

func (p *Permit) validate() error {
	if p.ID == "" {
		if len(p.Keys) > 0 || p.At != 0 && p.At != NoTime {
			return errors.New("event: permit_at without a permit: give the permit's id, too")
		}
		return nil
	}
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("event: "+format, args...)) }
	if len(p.Keys) > MaxPermitKeys {
		wrong("permit_at has %d keys, at most %d are allowed", len(p.Keys), MaxPermitKeys)
	}
	inYears := func(m Micros) {
		if m != NoTime && (m < MinTime || m > MaxTime) {
			wrong("permit_at %d µs is outside the years 0 to 9999", int64(m))
		}
	}
	inYears(p.At)
	for i, k := range p.Keys {
		inYears(k.At)
		if n := jsonLen(validText(k.Key)); k.Key == "" || n > MaxText {
			wrong("a key of permit_at has %d bytes of JSON, 1 to %d are allowed: %.80q", n, MaxText, k.Key)
		}
		if slices.ContainsFunc(p.Keys[:i], func(other PermitKey) bool { return other.Key == k.Key }) {
			wrong("permit_at has the key %.80q twice", k.Key)
		}
	}
	return errors.Join(errs...)
}

func (p *Permit) clone() Permit {
	c := *p
	c.ID, c.Keys = strings.Clone(p.ID), slices.Clone(p.Keys)
	for i := range c.Keys {
		c.Keys[i].Key = strings.Clone(c.Keys[i].Key)
	}
	return c
}
