package rules

import (
	"math/rand/v2"
	"testing"
)

// Whatever the hashes are, also if many want the same place, each names its own limit.
func TestLimitsAreFoundByTheirHashes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var x byHash
	if x.of(SectionHash{}) != nil {
		t.Error("an empty index has a limit")
	}
	want := map[SectionHash]*Limit{}
	for range 3000 {
		hash := SectionHash{byte(rng.IntN(4)), 0, 0, byte(rng.IntN(8)), byte(rng.IntN(8)), byte(rng.IntN(8))}
		if was := x.of(hash); was != want[hash] {
			t.Fatalf("%x names %p, want %p", hash, was, want[hash])
		}
		l := &Limit{}
		if rng.IntN(4) == 0 {
			l = nil
		}
		x.put(hash, l)
		want[hash] = l
	}
	for hash, l := range want {
		if x.of(hash) != l {
			t.Errorf("%x names another limit", hash)
		}
	}
}
