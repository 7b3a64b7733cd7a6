package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/tallygate/tallygate/event"
)

// Records of the verdict topic that are about strict limits are owners' own records: their keys begin
// with NUL, and readers that do not know them skip them.
const (
	levelPrefix = "\x00level|"
	grantsKey   = "\x00grants"
	versionKey  = "\x00rules"
)

// ErrOtherRecord says that a record of the verdict topic is not about strict limits.
var ErrOtherRecord = errors.New("protocol: a record that is not about strict limits")

// levelJSON is a Level's value; times are µs since 1970, amounts millionths.
type levelJSON struct {
	Seq      int64         `json:"seq"`
	Latest   int64         `json:"latest"`
	Settles  []string      `json:"settles,omitempty"`
	Exempt   int64         `json:"exempt,omitempty"`
	Sections []sectionJSON `json:"sections,omitempty"`
}

type sectionJSON struct {
	Name  string     `json:"name"`
	Steps [][2]int64 `json:"steps,omitempty"` // until, amount
	Level int64      `json:"level,omitempty"`
	Tier  uint64     `json:"tier,omitempty,string"`
}

type grantsJSON struct {
	Run   string `json:"run"`
	Life  string `json:"life"`
	Until int64  `json:"until"` // programs that know no hold take 0 for not at all

	Hold      int64  `json:"hold,omitempty"`
	HoldUntil int64  `json:"hold_until,omitempty"`
	HoldRules uint64 `json:"hold_rules,omitempty"`
}

type versionJSON struct {
	Version uint64 `json:"version"`
}

// Versions are told apart beyond their topic: one that was created anew counts from the start, and what
// is known of an older topic's version with the same number is not this one's.
const (
	numberBits = 32 // of a version; what is above them says which topic
	topicBits  = 20 // scripts count in doubles: 53 bits in all
)

// RulesVersion names a version of the rules: by its number in a topic, of which the id is known, or all zeros. It is
// 0 for rules that are in no topic.
func RulesVersion(topic [16]byte, number int64) uint64 {
	if number == 0 || topic == [16]byte{} {
		return uint64(number)
	}
	h := fnv.New64a()
	h.Write(topic[:])
	of := (h.Sum64()^h.Sum64()>>32)&(1<<topicBits-1) | 1 // none is 0
	return of<<numberBits | uint64(number)&(1<<numberBits-1)
}

// RulesNumber is the number of a version in its topic.
func RulesNumber(version uint64) uint64 { return version & (1<<numberBits - 1) }

// SameTopic tells whether two versions are of one topic, so that the greater one is the newer one.
func SameTopic(a, b uint64) bool { return a>>numberBits == b>>numberBits }

// Encode returns the record's key and value; a tombstone has no value.
func (r *Record) Encode() (key, value []byte, err error) {
	var body any
	switch {
	case r.Level != nil:
		key, body = []byte(levelPrefix+r.Level.Key), r.Level.json()
	case r.Gone != "":
		return []byte(levelPrefix + r.Gone), nil, nil
	case r.Grants != nil:
		key, body = []byte(grantsKey), r.Grants.json()
	default:
		key, body = []byte(versionKey), versionJSON{r.Version}
	}
	if value, err = json.Marshal(body); err != nil {
		return nil, nil, fmt.Errorf("protocol: encode a record: %w", err)
	}
	return key, value, nil
}

// ParseRecord is the inverse of Encode. It returns ErrOtherRecord for any other record.
func ParseRecord(key, value []byte) (r Record, err error) {
	switch text := string(key); {
	case text == grantsKey:
		var g grantsJSON
		err = json.Unmarshal(value, &g)
		r.Grants = &Grants{Run: g.Run, Life: g.Life, Until: event.Micros(g.Until)}
		if g.Hold > 0 {
			r.Grants.Hold, r.Grants.Until, r.Grants.Rules = event.Micros(g.Hold), event.Micros(g.HoldUntil), g.HoldRules
		}
	case text == versionKey:
		var v versionJSON
		err = json.Unmarshal(value, &v)
		r.Version = v.Version
	case !strings.HasPrefix(text, levelPrefix):
		return r, ErrOtherRecord
	case len(value) == 0:
		r.Gone = strings.TrimPrefix(text, levelPrefix)
	default:
		var l levelJSON
		err = json.Unmarshal(value, &l)
		r.Level = l.level(strings.TrimPrefix(text, levelPrefix))
	}
	if err != nil {
		return Record{}, fmt.Errorf("protocol: parse the record %.80q: %w", key, err)
	}
	return r, nil
}

func (g *Grants) json() grantsJSON {
	if g.Hold > 0 {
		return grantsJSON{Run: g.Run, Life: g.Life, Hold: int64(g.Hold), HoldUntil: int64(g.Until), HoldRules: g.Rules}
	}
	return grantsJSON{Run: g.Run, Life: g.Life, Until: int64(g.Until)}
}

// json is the level's value, as scripts and the verdict topic have it.
func (l *Level) json() levelJSON {
	out := levelJSON{Seq: l.Seq, Latest: int64(l.Latest), Settles: l.Settles, Exempt: int64(l.Exempt)}
	for i := range l.Sections {
		s := &l.Sections[i]
		one := sectionJSON{Name: s.Name, Level: int64(s.Level), Tier: s.Tier}
		for _, step := range s.Steps {
			one.Steps = append(one.Steps, [2]int64{int64(step.Until), int64(step.Amount)})
		}
		out.Sections = append(out.Sections, one)
	}
	return out
}

func (l *levelJSON) level(key string) *Level {
	out := &Level{Key: key, Seq: l.Seq, Latest: event.Micros(l.Latest), Settles: l.Settles, Exempt: event.Micros(l.Exempt)}
	for i := range l.Sections {
		s := &l.Sections[i]
		one := Section{Name: s.Name, Level: event.Decimal(s.Level), Tier: s.Tier}
		for _, step := range s.Steps {
			one.Steps = append(one.Steps, Step{event.Micros(step[0]), event.Decimal(step[1])})
		}
		out.Sections = append(out.Sections, one)
	}
	return out
}
