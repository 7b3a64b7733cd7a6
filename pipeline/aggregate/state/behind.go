package state

import (
	"bytes"
	"cmp"
	pq "container/heap"
	"slices"
)

// PartOf is the part of a table that a key is in.
func PartOf(key []byte) int { return int(Hash(key) >> (64 - subBits)) }

// Behind copies the keys of a part that come next behind one, in the order of their hashes and then of
// their texts: at most so many, and more tells whether there are others. The empty key is in front of all;
// one of another part is taken by its hash, too.
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

// nearest is a heap whose first is the one that is farthest behind.
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
