package network

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// A look-up takes less than a microsecond, however long the lists are: it looks at as many spans as their
// number has binary digits, which are 17 for the longest list, at some nanoseconds each.
func TestALookUpIsShortHoweverLongTheListIs(t *testing.T) {
	const n = 100_000
	var all []netip.Prefix
	for i := range uint32(n) {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], i*512)
		all = append(all, netip.PrefixFrom(netip.AddrFrom4(b), 24))
	}
	s := New(all)
	if len(s.v4) != n {
		t.Fatalf("%d spans", len(s.v4))
	}
	most := 0
	for i := range uint32(n) {
		looks := 0
		compare := func(a, b uint32) int {
			looks++
			return int(int64(a) - int64(b))
		}
		if !within(s.v4, span[uint32]{i * 512, i*512 + 255}, compare) {
			t.Fatalf("the network %d is not found", i)
		}
		most = max(most, looks)
	}
	if want := bits.Len(n) + 1; most > want {
		t.Errorf("%d looks, want at most %d", most, want)
	}
	if allocs := testrun.Allocs(100, func() { s.Contains(all[7].Addr()) }); allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}
