package index

import (
	"strings"
	"testing"
)

// Each byte of a short uid counts in its hash.
func TestShortUIDsHaveHashesOfTheirOwn(t *testing.T) {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	all, seen := []string{""}, map[uint64]string{}
	for n := 0; n < len(all); n++ {
		u := UserOf(all[n])
		if other, ok := seen[u.hash]; ok {
			t.Fatalf("%q has the hash of %q", all[n], other)
		}
		seen[u.hash] = all[n]
		for i := 0; i < len(letters) && len(all[n]) < 3; i++ {
			all = append(all, all[n]+letters[i:i+1])
		}
	}
}

func TestPlainUIDsAreASCIIAndNotLong(t *testing.T) {
	for _, c := range []struct {
		uid   string
		plain bool
	}{
		{"", true}, {"a", true}, {"é", false}, {"用户-12345", false}, {"1234567890123456", true}, {"123456789012345é", false},
		{"12345678901234567", true}, {"12345678901234567890é", false}, {"é12345678901234567890", false},
		{strings.Repeat("x", 255), true}, {strings.Repeat("x", 256), false},
	} {
		if got := UserOf(c.uid).Plain(c.uid); got != c.plain {
			t.Errorf("%q is plain: %v, want %v", c.uid, got, c.plain)
		}
	}
}
