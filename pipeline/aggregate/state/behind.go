package state

import (
	"bytes"
	"cmp"
	pq "container/heap"
	"slices"
)

// PartOf returns the part of a table that a key is in.
func PartOf(key []byte) int { return int(Hash(key) >> (64 - subBits)) }

// Behind copies the keys of a part that follow a key, in the order of their hashes and then of
// their texts. It returns at most so many; more reports whether others follow. The empty key
// precedes all. A key of another part is compared by its hash, too.
func (t *Table) Behind(part int, key []byte, most int) (keys [][]byte, more bool) {
	var list nearest
	after := ranked{Hash(key), key}
	for ref := range t.Part(part) {
		r := ranked{Hash(t.Key(ref)), t.Key(ref)}
		if len(key) > 0 && r.compare(after) <= 0 {
			continue
		}
		if len(list) == most {
			if more = true; r.compare(list[0]) >= 0 {
				continue
			}
			pq.Pop(&list)
		}
		pq.Push(&list, r)
	}
	slices.SortFunc(list, ranked.compare)
	for _, r := range list {
		keys = append(keys, bytes.Clone(r.key))
	}
	return keys, more
}

// ranked is a key in that order.
type ranked struct {
	hash uint64
	key  []byte
}

func (r ranked) compare(o ranked) int {
	return cmp.Or(cmp.Compare(r.hash, o.hash), bytes.Compare(r.key, o.key))
}

// nearest is a heap with the last key of the order on top.
type nearest []ranked

func (n nearest) Len() int           { return len(n) }
func (n nearest) Less(i, j int) bool { return n[i].compare(n[j]) > 0 }
func (n nearest) Swap(i, j int)      { n[i], n[j] = n[j], n[i] }
func (n *nearest) Push(x any)        { *n = append(*n, x.(ranked)) }
func (n *nearest) Pop() any {
	last := (*n)[len(*n)-1]
	*n = (*n)[:len(*n)-1]
	return last
}
