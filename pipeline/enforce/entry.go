package enforce

import (
	"slices"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// entry is one key and its verdicts. It is immutable. What a check reads of a key with one dimension and
// one verdict lies in one piece of memory, and in the value's bytes.
type entry struct {
	shape *shape
	hash  uint64
	value string   // of the shape's first dimension
	more  []string // of its others
	held  []held
	one   [1]held // where held is when it is one
}

// held is one verdict of a key, named by its rule and whether it is a notice.
type held struct {
	since, until event.Micros
	rule         string
	action       verdict.Action
	decides      bool // it is a block that is enforced
	everywhere   bool // it covers all APIs
	shard        int32
	round        uint64 // of the shard's latest Replace that it came with, or came after
	verdict      *verdict.Verdict
}

// hold copies v, so that one verdict doesn't keep the whole batch that it came with in memory.
func hold(shard int, round uint64, v *verdict.Verdict) held {
	mine := *v
	return held{
		since: v.Since, until: v.Until, rule: v.Rule, action: v.Action,
		decides:    v.State == verdict.Block && v.Mode == verdict.Enforce,
		everywhere: slices.Contains(v.APIs, "*"),
		shard:      int32(shard), round: round, verdict: &mine,
	}
}

// with returns an entry of the same key that has other verdicts; it keeps list.
func (e *entry) with(list []held) *entry {
	n := &entry{shape: e.shape, hash: e.hash, value: e.value, more: e.more, held: list}
	if len(list) == 1 {
		n.one[0] = list[0]
		n.held = n.one[:]
	}
	return n
}

// dim returns the value of the shape's i-th dimension.
func (e *entry) dim(i int) string {
	if i == 0 {
		return e.value
	}
	return e.more[i-1]
}

// find returns the place of the verdict that has this rule's record key; -1 when there is none.
func (e *entry) find(rule string, notice bool) int {
	return slices.IndexFunc(e.held, func(h held) bool {
		return h.rule == rule && (h.verdict.State == verdict.Warn) == notice
	})
}

// best returns the stronger of what decided so far, nil when nothing did, and what this key's verdicts say.
func (e *entry) best(so *held, api string, now event.Micros) *held {
	for i := range e.held {
		h := &e.held[i]
		if h.decides && h.inForce(now) && (h.everywhere || h.verdict.Covers(api)) && (so == nil || h.stronger(so)) {
			so = h
		}
	}
	return so
}

func (h *held) inForce(now event.Micros) bool { return h.since <= now && now < h.until }

// stronger orders verdicts by which one decides: the stronger action, then the later until. The
// rule's name makes the order total.
func (h *held) stronger(than *held) bool {
	if h.action != than.action {
		return h.action > than.action
	}
	if h.until != than.until {
		return h.until > than.until
	}
	return h.rule < than.rule
}
