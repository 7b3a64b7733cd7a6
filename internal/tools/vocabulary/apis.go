package vocabulary

import (
	"maps"
	"slices"
	"strings"
)

// Names that differ in one segment are a pattern when they are more than these: then the segment is rather
// somebody's number than a name. What APIs begin with are names for longer.
const (
	maxNames = 20
	maxFirst = 1000
)

// apiNode holds the names of APIs that begin with the same segments.
type apiNode struct {
	events uint64 // of the API that ends here
	next   map[string]*apiNode
	any    *apiNode // in the place of next, when that were too many
}

// add notes events of an API.
func (n *apiNode) add(name string, events uint64) {
	at, most := n, maxFirst
	for segment := range strings.SplitSeq(name, ".") {
		at = at.child(segment, most)
		most = maxNames
	}
	at.events += events
}

// child is the node of a segment, which is made when there is none yet.
func (n *apiNode) child(segment string, most int) *apiNode {
	if n.any != nil {
		return n.any
	}
	if c := n.next[segment]; c != nil {
		return c
	}
	if n.next == nil {
		n.next = map[string]*apiNode{}
	}
	n.next[strings.Clone(segment)] = &apiNode{}
	if len(n.next) > most {
		n.fold()
		return n.any
	}
	return n.next[segment]
}

// fold makes one of all that follows.
func (n *apiNode) fold() {
	n.any = &apiNode{}
	for _, c := range n.next {
		n.any.merge(c)
	}
	n.next = nil
}

// merge takes in what another node has.
func (n *apiNode) merge(other *apiNode) {
	n.events += other.events
	if other.any != nil {
		if n.any == nil {
			n.fold()
		}
		n.any.merge(other.any)
	}
	for segment, c := range other.next {
		n.child(segment, maxNames).merge(c)
	}
}

// api is a name or a pattern of APIs.
type api struct {
	API    string `json:"api"`
	Events uint64 `json:"events"`
	Many   bool   `json:"many_names,omitempty"` // it was made of more than maxNames
}

// list appends the names and patterns below the segments that lead to a node, sorted.
func (n *apiNode) list(dst []api, many bool, segments ...string) []api {
	if name := strings.Join(segments, "."); n.events > 0 {
		if strings.HasSuffix(name, "*") {
			return append(dst, api{name, n.total(), true}) // it takes all that follows
		}
		dst = append(dst, api{name, n.events, many})
	}
	segments = slices.Clip(segments)
	if n.any != nil {
		dst = n.any.list(dst, true, append(segments, "*")...)
	}
	for _, segment := range slices.Sorted(maps.Keys(n.next)) {
		dst = n.next[segment].list(dst, many, append(segments, segment)...)
	}
	return dst
}

// total counts the events of all APIs from here on.
func (n *apiNode) total() uint64 {
	sum := n.events
	if n.any != nil {
		sum += n.any.total()
	}
	for _, c := range n.next {
		sum += c.total()
	}
	return sum
}
