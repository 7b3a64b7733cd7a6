package keystate

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tallygate/tallygate/pipeline/event"
)

func TestBlocksComeBackAsTheyWere(t *testing.T) {
	const at = event.Micros(1_790_000_000_000_000)
	for _, want := range []Block{
		{Since: at, Until: at + 5*event.Minute, Count: 101 * event.One, Limit: 100 * event.One, Partition: 3, Offset: 118, ID: []byte("e1"), Display: 7, Shadow: true, Name: []byte("search/candidate")},
		{Since: -1, Until: math.MaxInt64, Count: event.MaxDecimal, Limit: 1, Partition: -1, Offset: -1, ID: []byte{}},
		{Since: at, Until: at, ID: make([]byte, 128)},
	} {
		r := varints{b: append(want.Append(nil), "rest"...)}
		got := r.block(Version)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Block{}), cmpopts.EquateEmpty()); r.bad || diff != "" || string(r.b) != "rest" {
			t.Errorf("rest %q, %v (- want):\n%s", r.b, r.bad, diff)
		}
	}
}
