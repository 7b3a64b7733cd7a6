package rules

import (
	"cmp"
	"hash/maphash"
	"math"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// apiIndex finds the rules that count an API's events: exact names in a map, patterns in a
// trie over dotted segments. What it costs depends on the name, not on how many rules there are.
type apiIndex[R comparable] struct {
	exact map[string][]apiEntry[R]
	root  apiNode[R]
}

// apiEntry is one name or pattern of one rule.
type apiEntry[R comparable] struct {
	rule   R   // whose it is
	order  int // of the rule
	weight int64
	rank   int // its length; an exact name's is above all
	place  int // in the rule, to decide between patterns of one length

	reset   bool          // it is of the rule's reset_on; such entries come first
	limited bool          // it takes what a limit denied
	apiOnly bool          // beside that, the rule asks for nothing but the API
	unit    event.Decimal // what it counts for an event of cost 1, unless it sums
}

// apiNode holds the patterns that begin with the same segments.
type apiNode[R comparable] struct {
	here    []apiEntry[R]          // patterns that end here
	literal map[string]*apiNode[R] // next segments without `*`
	wild    headed[*apiNode[R]]    // next segments with one
	tails   headed[[]apiEntry[R]]  // patterns that end with `*` in the next segment
}

// headed finds glob patterns by what stands before their first `*`.
type headed[T any] struct {
	lengths []int // of the heads there are
	byHead  map[string][]headedItem[T]
	places  map[string]int // of globs, in the items of their heads
}

type headedItem[T any] struct {
	glob string
	item T
}

func newAPIIndex[R comparable]() *apiIndex[R] { return &apiIndex[R]{exact: map[string][]apiEntry[R]{}} }

// add adds a name or a pattern.
func (ix *apiIndex[R]) add(pattern string, entry apiEntry[R]) {
	if entry.rank = len(pattern); strings.Contains(pattern, "*") {
		ix.root.add(pattern, entry)
		return
	}
	entry.rank = math.MaxInt
	ix.exact[pattern] = append(ix.exact[pattern], entry)
}

func (n *apiNode[R]) add(pattern string, entry apiEntry[R]) {
	segment, rest, more := strings.Cut(pattern, ".")
	switch {
	case !more && strings.HasSuffix(segment, "*"):
		entries := n.tails.item(segment)
		*entries = append(*entries, entry)
	case strings.Contains(segment, "*"):
		next := n.wild.item(segment)
		if *next == nil {
			*next = &apiNode[R]{}
		}
		(*next).addRest(rest, more, entry)
	default:
		next := n.literal[segment]
		if next == nil {
			next = &apiNode[R]{}
			if n.literal == nil {
				n.literal = map[string]*apiNode[R]{}
			}
			n.literal[segment] = next
		}
		next.addRest(rest, more, entry)
	}
}

func (n *apiNode[R]) addRest(rest string, more bool, entry apiEntry[R]) {
	if more {
		n.add(rest, entry)
		return
	}
	n.here = append(n.here, entry)
}

// find appends what matches a name from its given segment on. No node is visited twice: the
// dots of a name and a pattern align in one way only.
func (n *apiNode[R]) find(dst []apiEntry[R], name string) []apiEntry[R] {
	for _, length := range n.tails.lengths {
		if length > len(name) {
			break
		}
		for _, t := range n.tails.byHead[name[:length]] {
			if verdict.MatchAPI(t.glob, name) {
				dst = append(dst, t.item...)
			}
		}
	}
	segment, rest, more := strings.Cut(name, ".")
	if next := n.literal[segment]; next != nil {
		dst = next.findRest(dst, rest, more)
	}
	for _, length := range n.wild.lengths {
		if length > len(segment) {
			break
		}
		for _, w := range n.wild.byHead[segment[:length]] {
			if verdict.MatchAPI(w.glob, segment) {
				dst = w.item.findRest(dst, rest, more)
			}
		}
	}
	return dst
}

func (n *apiNode[R]) findRest(dst []apiEntry[R], rest string, more bool) []apiEntry[R] {
	if more {
		return n.find(dst, rest)
	}
	return append(dst, n.here...)
}

// item returns the place of a glob's item, which is made when there is none yet.
func (h *headed[T]) item(glob string) *T {
	head, _, _ := strings.Cut(glob, "*")
	items := h.byHead[head]
	if i, known := h.places[glob]; known {
		return &items[i].item
	}
	if h.byHead == nil {
		h.byHead, h.places = map[string][]headedItem[T]{}, map[string]int{}
	}
	h.places[glob] = len(items)
	if at, found := slices.BinarySearch(h.lengths, len(head)); !found {
		h.lengths = slices.Insert(h.lengths, at, len(head))
	}
	items = append(items, headedItem[T]{glob: glob})
	h.byHead[head] = items
	return &items[len(items)-1].item
}

// find appends one entry for each rule that counts this API's events, in the order of the
// rules: the entry whose weight wins.
func (ix *apiIndex[R]) find(dst []apiEntry[R], api string) []apiEntry[R] {
	dst = append(dst, ix.exact[api]...)
	dst = ix.root.find(dst, api)
	slices.SortFunc(dst, compareEntries[R])
	return slices.CompactFunc(dst, func(a, b apiEntry[R]) bool { return a.rule == b.rule && a.reset == b.reset })
}

func compareEntries[R comparable](a, b apiEntry[R]) int {
	return cmp.Or(
		cmp.Compare(a.order, b.order),
		compareBool(b.reset, a.reset),
		cmp.Compare(b.rank, a.rank),
		cmp.Compare(a.place, b.place),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// apiSlots bounds the APIs whose rules a Matcher remembers; names that share a slot take turns.
const apiSlots = 1024

// apiCache remembers which rules are for the APIs that were asked for last.
type apiCache struct {
	index *apiIndex[*Rule]
	seed  maphash.Seed
	slots []apiSlot // by a hash of the API's name
}

// apiSlot remembers which rules are for one API.
type apiSlot struct {
	api   []byte
	rules []apiEntry[*Rule]
}

func newAPICache(index *apiIndex[*Rule], slots int) apiCache {
	return apiCache{index: index, seed: maphash.MakeSeed(), slots: make([]apiSlot, slots)}
}

// find returns the rules for an API, in their order.
func (c *apiCache) find(api string) []apiEntry[*Rule] {
	slot := &c.slots[maphash.String(c.seed, api)%uint64(len(c.slots))]
	if string(slot.api) != api || slot.rules == nil {
		slot.api = append(slot.api[:0], api...)
		if slot.rules = c.index.find(slot.rules[:0], api); slot.rules == nil {
			slot.rules = []apiEntry[*Rule]{} // known to have none
		}
	}
	return slot.rules
}
