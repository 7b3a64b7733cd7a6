package enforce

import (
	"math/rand/v2"
	"testing"

	"github.com/tallygate/tallygate/verdict"
)

// Check reads keys of different lengths in different ways. It finds each, and none that differs from it in any one byte: of so many
// that do, hundreds of each length have the same tag in the same bucket, so that the bytes decide.
func TestKeysOfAllLengths(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for n := 1; n <= 300; n++ {
		names := 1
		if n <= 20 {
			names = 40
		}
		for range names {
			uid := make([]byte, n)
			for i := range uid {
				uid[i] = 'a' + byte(r.IntN(26))
			}
			table := newTable(t)
			table.Replace(0, []verdict.Verdict{block("r", "uid="+string(uid), func(v *verdict.Verdict) { v.Since, v.Until = 0, now()*2 })})
			if d := table.Check("order.create", string(uid)); d.Rule() != "r" {
				t.Fatalf("%d bytes: %q has a verdict, and is found to have %q", n, uid, d.Rule())
			}
			if !table.Check("order.create", string(uid)+"a").Allowed || !table.Check("order.create", string(uid[1:])).Allowed {
				t.Errorf("%d bytes: a longer or a shorter one than %q is denied", n, uid)
			}
			for at := 0; at < n && names > 1; at++ {
				for other := range 255 {
					another := string(uid[:at]) + string([]byte{uid[at] + byte(other) + 1}) + string(uid[at+1:])
					if !table.Check("order.create", another).Allowed {
						t.Fatalf("%q is denied for %q", another, uid)
					}
				}
			}
		}
	}
}
