package rules

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// apiIndex finds the rules that count an API's events: exact names in a map, patterns in a
// trie over dotted segments. What it costs depends on the name, not on how many rules there are.
type apiIndex struct {
	exact map[string][]apiEntry
	root  apiNode
}

// apiEntry is one name or pattern of one rule.
type apiEntry struct {
	rule   *Rule
	weight int64
	rank   int // its length; an exact name's is above all
	place  int // in the rule, to decide between patterns of one length

	apiOnly bool          // the rule asks for nothing but the API
	unit    event.Decimal // what it counts for an event of cost 1, unless it sums
}

// apiNode is where the patterns are that begin with the same segments.
type apiNode struct {
	here    []apiEntry          // patterns that end here
	literal map[string]*apiNode // next segments without `*`
	wild    headed[*apiNode]    // next segments with one
	tails   headed[[]apiEntry]  // patterns that end with `*` in the next segment
}

// headed finds glob patterns by what stands before their first `*`.
type headed[T any] struct {
	lengths []int // of the heads there are
	byHead  map[string][]headedItem[T]
}

type headedItem[T any] struct {
	glob string
	item T
}

func newAPIIndex(rules []*Rule) *apiIndex {
	ix := &apiIndex{exact: map[string][]apiEntry{}}
	for _, r := range rules {
		for place, a := range r.match.apis {
			entry := apiEntry{rule: r, weight: a.weight, rank: len(a.pattern), place: place, apiOnly: r.match.apiOnly()}
			entry.unit, _ = countAmount(event.One, a.weight)
			if strings.Contains(a.pattern, "*") {
				ix.root.add(a.pattern, entry)
				continue
			}
			entry.rank = math.MaxInt
			ix.exact[a.pattern] = append(ix.exact[a.pattern], entry)
		}
	}
	return ix
}

func (n *apiNode) add(pattern string, entry apiEntry) {
	segment, rest, more := strings.Cut(pattern, ".")
	switch {
	case !more && strings.HasSuffix(segment, "*"):
		entries := n.tails.item(segment)
		*entries = append(*entries, entry)
	case strings.Contains(segment, "*"):
		next := n.wild.item(segment)
		if *next == nil {
			*next = &apiNode{}
		}
		(*next).addRest(rest, more, entry)
	default:
		next := n.literal[segment]
		if next == nil {
			next = &apiNode{}
			if n.literal == nil {
				n.literal = map[string]*apiNode{}
			}
			n.literal[segment] = next
		}
		next.addRest(rest, more, entry)
	}
}

func (n *apiNode) addRest(rest string, more bool, entry apiEntry) {
	if more {
		n.add(rest, entry)
		return
	}
	n.here = append(n.here, entry)
}

// find appends what matches a name from its given segment on. No node is visited twice: the
// dots of a name and a pattern align in one way only.
func (n *apiNode) find(dst []apiEntry, name string) []apiEntry {
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

func (n *apiNode) findRest(dst []apiEntry, rest string, more bool) []apiEntry {
	if more {
		return n.find(dst, rest)
	}
	return append(dst, n.here...)
}

// item returns the place of a glob's item, which is made when there is none yet.
func (h *headed[T]) item(glob string) *T {
	head, _, _ := strings.Cut(glob, "*")
	items := h.byHead[head]
	for i := range items {
		if items[i].glob == glob {
			return &items[i].item
		}
	}
	if h.byHead == nil {
		h.byHead = map[string][]headedItem[T]{}
	}
	if at, found := slices.BinarySearch(h.lengths, len(head)); !found {
		h.lengths = slices.Insert(h.lengths, at, len(head))
	}
	items = append(items, headedItem[T]{glob: glob})
	h.byHead[head] = items
	return &items[len(items)-1].item
}

// find appends one entry for each rule that counts this API's events, in the order of the
// rules: the entry whose weight wins.
func (ix *apiIndex) find(dst []apiEntry, api string) []apiEntry {
	dst = append(dst, ix.exact[api]...)
	dst = ix.root.find(dst, api)
	slices.SortFunc(dst, compareEntries)
	return slices.CompactFunc(dst, func(a, b apiEntry) bool { return a.rule == b.rule })
}

func compareEntries(a, b apiEntry) int {
	return cmp.Or(
		cmp.Compare(a.rule.Index, b.rule.Index),
		cmp.Compare(b.rank, a.rank),
		cmp.Compare(a.place, b.place),
	)
}
