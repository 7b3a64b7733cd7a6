package enforce

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// class is what the verdicts of one rule share: few, so they lie in the processor's cache. All but refs never changes.
type class struct {
	decides  bool         // it is a block that is enforced
	duration event.Micros // of the first verdict's block, and so usually of all
	prefix   string       // of APIs that it covers: order. for order.*; a NUL when there is none
	mask     uint64       // of an API's first eight bytes, those of the prefix; 0 when that is longer
	word     uint64       // they are these then
	names    []string     // of APIs that it covers
	patterns []string     // of those that are neither
	allows   bool         // a check that it decides is allowed
	reason   reason       // of a check that it decides

	verdict    verdict.Verdict // without a key, times, count, seq and cause
	shard      int
	generation uint64 // of the shard
	text       string // what tells it from others
	number     uint64
	refs       int // how many verdicts it has; the writer's
}

// covers is verdict.Verdict.Covers, with what need be done only once done.
func (c *class) covers(api string) bool {
	if strings.HasPrefix(api, c.prefix) {
		return true
	}
	for _, name := range c.names {
		if name == api {
			return true
		}
	}
	for _, pattern := range c.patterns {
		if verdict.MatchAPI(pattern, api) {
			return true
		}
	}
	return false
}

// isOlder reports whether the class is of an earlier generation of this shard.
func (c *class) isOlder(shard int, generation uint64) bool {
	return c.shard == shard && c.generation != generation
}

func newClass(shard int, v *verdict.Verdict, text string) *class {
	c := &class{
		prefix:   "\x00", // no API begins with it
		decides:  v.Decides(),
		duration: v.Until - v.Since,
		verdict: verdict.Verdict{Rule: strings.Clone(v.Rule), Public: strings.Clone(v.Public), State: v.State, Mode: v.Mode, Action: v.Action,
			Limit: v.Limit, Step: strings.Clone(v.Step)},
		shard: shard, text: text,
	}
	for _, api := range v.APIs {
		api = strings.Clone(api)
		c.verdict.APIs = append(c.verdict.APIs, api)
		switch star := strings.IndexByte(api, '*'); {
		case star < 0:
			c.names = append(c.names, api)
		case star == len(api)-1 && (c.prefix == "\x00" || strings.HasPrefix(c.prefix, api[:star])):
			c.prefix = api[:star]
		default:
			c.patterns = append(c.patterns, api)
		}
	}
	if c.word = 1; len(c.prefix) <= 8 {
		c.mask = load64("\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00", 8-len(c.prefix))
		c.word = load64(c.prefix+"\x00\x00\x00\x00\x00\x00\x00\x00", 0)
	}
	c.allows = v.Action == verdict.ActLog
	c.reason = reason{rule: c.verdict.Rule, public: c.verdict.Public, action: v.Action, limit: v.Limit}
	return c
}

// classOf returns the class of a verdict, made when there is none.
func (s *store) classOf(shard int, v *verdict.Verdict) *class {
	generation := s.generations[shard]
	t := strconv.AppendInt(s.text[:0], int64(shard), 10)
	t = strconv.AppendUint(append(t, ' '), generation, 10)
	t = append(t, ' ', byte(v.State), byte(v.Mode), byte(v.Action))
	t = v.Limit.AppendTo(t)
	t = appendPart(appendPart(appendPart(t, v.Rule), v.Public), v.Step)
	for _, api := range v.APIs {
		t = appendPart(t, api)
	}
	s.text = t
	if c := s.classes[string(t)]; c != nil {
		return c
	}
	c := newClass(shard, v, string(t))
	c.generation, c.number = generation, uint64(len(s.view.classes))
	if i := slices.Index(s.view.classes, nil); i >= 0 {
		c.number = uint64(i)
	}
	s.classes[c.text] = c
	s.publish(func(v *view) {
		v.classes = append(slices.Clone(v.classes), nil)[:max(len(v.classes), int(c.number)+1)]
		v.classes[c.number] = c
	})
	return c
}

func appendPart(dst []byte, part string) []byte {
	dst = strconv.AppendInt(append(dst, ' '), int64(len(part)), 10)
	return append(append(dst, ' '), part...)
}
