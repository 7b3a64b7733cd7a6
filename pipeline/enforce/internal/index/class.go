package index

import (
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// Class holds the fields that many verdicts of one rule share: few, so they lie in the processor's cache. What is
// exported never changes.
type Class struct {
	Decides  bool         // it is a block that is enforced
	Logs     bool         // its action is log: what it decides is allowed
	Shadow   bool         // it is a block in shadow mode
	Duration event.Micros // of the first verdict, and so usually of all
	prefix   string       // of APIs that it covers: order. for order.*; a NUL when there is none
	mask     uint64       // of an API's first eight bytes, those of the prefix; 0 when that is longer
	word     uint64       // they are these then
	names    []string     // of APIs that it covers
	patterns []string     // of those that are neither

	Rule       *Rule
	Verdict    verdict.Verdict // without a key, times, count, seq and cause
	shard      int
	generation uint64 // of the shard
	text       string // what tells it from others
	number     uint64
	refs       int // how many verdicts it has; the writer's
}

// newClass makes the class of a verdict. It keeps nothing of the verdict's own memory.
func newClass(shard int, generation uint64, v *verdict.Verdict, text string) *Class {
	c := &Class{
		prefix:  "\x00", // no API begins with it
		Decides: v.Decides(), Logs: v.Action == verdict.ActLog, Shadow: v.State == verdict.Block && v.Mode == verdict.Shadow, Duration: v.Until - v.Since,
		Verdict: verdict.Verdict{Rule: strings.Clone(v.Rule), Public: strings.Clone(v.Public), State: v.State, Mode: v.Mode, Action: v.Action,
			Limit: v.Limit, Per: v.Per, Step: strings.Clone(v.Step)},
		shard: shard, generation: generation, text: text,
	}
	for _, api := range v.APIs {
		api = strings.Clone(api)
		c.Verdict.APIs = append(c.Verdict.APIs, api)
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
	return c
}

// appendClassText appends what tells the class of a verdict from others.
func appendClassText(dst []byte, shard int, generation uint64, v *verdict.Verdict) []byte {
	dst = strconv.AppendInt(dst, int64(shard), 10)
	dst = strconv.AppendUint(append(dst, ' '), generation, 10)
	dst = append(dst, ' ', byte(v.State), byte(v.Mode), byte(v.Action))
	dst = v.Limit.AppendTo(dst)
	dst = strconv.AppendInt(append(dst, ' '), int64(v.Per), 10)
	dst = appendPart(appendPart(appendPart(dst, v.Rule), v.Public), v.Step)
	for _, api := range v.APIs {
		dst = appendPart(dst, api)
	}
	return dst
}

func appendPart(dst []byte, part string) []byte {
	dst = strconv.AppendInt(append(dst, ' '), int64(len(part)), 10)
	return append(append(dst, ' '), part...)
}

// CoversSurely reports whether the class covers the API by a prefix of up to eight bytes, such as *
// or order.*, as most do. It is so small that the compiler inlines it; when it is false, Covers
// tells.
func (c *Class) CoversSurely(api string) bool {
	return len(api) >= 8 && load64(api, 0)&c.mask == c.word
}

// Covers is verdict.Verdict.Covers, with what need be done only once done.
func (c *Class) Covers(api string) bool {
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
func (c *Class) isOlder(shard int, generation uint64) bool {
	return c.shard == shard && c.generation != generation
}
