package state

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Pages of any size have each key that stays once, whatever comes and goes between them.
func TestBehindMissesNoKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, stays := New(), map[string]bool{}
		n := rapid.IntRange(0, 300).Draw(t, "keys")
		for i := range n {
			key := fmt.Sprintf("uid=%d", i)
			table.Set([]byte(key), []byte("x"))
			stays[key] = true
		}
		most := rapid.IntRange(1, 40).Draw(t, "most")
		var seen []string
		next := ""
		for part := range Parts {
			for {
				keys, more := table.Behind(part, []byte(next), most)
				if len(keys) > most || more && len(keys) < most {
					t.Fatalf("%d keys of at most %d, more %v", len(keys), most, more)
				}
				for _, key := range keys {
					if next = string(key); PartOf(key) != part {
						t.Fatalf("%s is of part %d, and comes with %d", key, PartOf(key), part)
					}
					seen = append(seen, next)
				}
				table.Set(fmt.Appendf(nil, "later=%d", rapid.Int().Draw(t, "later")), []byte("x"))
				if gone := rapid.IntRange(0, 300).Draw(t, "gone"); gone < n {
					table.Delete(fmt.Appendf(nil, "uid=%d", gone))
					delete(stays, fmt.Sprintf("uid=%d", gone))
				}
				if !more {
					break
				}
			}
		}
		for key := range stays {
			if !slices.Contains(seen, key) {
				t.Fatalf("%s was on no page", key)
			}
		}
		if !slices.IsSortedFunc(seen, func(a, b string) int {
			return ranked{Hash([]byte(a)), []byte(a)}.compare(ranked{Hash([]byte(b)), []byte(b)})
		}) || len(slices.Compact(seen)) != len(seen) {
			t.Fatal("a key came twice, or out of order")
		}
	})
	table := New()
	table.Set([]byte("uid=1"), []byte("x"))
	keys, _ := table.Behind(PartOf([]byte("uid=1")), nil, 1)
	table.Delete([]byte("uid=1"))
	table.Set([]byte("uid=2"), []byte("x"))
	if !bytes.Equal(keys[0], []byte("uid=1")) {
		t.Errorf("the key was no copy: %s", keys[0])
	}
}
