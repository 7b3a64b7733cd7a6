package network

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for _, test := range []struct{ text, want, problem, hint string }{
		{"10.0.0.0/8", "10.0.0.0/8", "", ""},
		{"192.0.2.1", "192.0.2.1/32", "", ""},
		{"0.0.0.0/0", "0.0.0.0/0", "", ""},
		{"2001:DB8::/32", "2001:db8::/32", "", ""},
		{"2001:db8::1", "2001:db8::1/128", "", ""},
		{"::/0", "::/0", "", ""},
		{"::ffff:10.0.0.0/104", "10.0.0.0/8", "", ""},
		{"::ffff:10.0.0.0/90", "", "only the first 90 bits", "write ::ffc0:0:0/90"},
		{"::ffff:192.0.2.1", "192.0.2.1/32", "", ""},
		{"10.0.0.1/8", "", "only the first 8 bits may be set", "write 10.0.0.0/8, or 10.0.0.1"},
		{"2001:db8::1/64", "", "only the first 64 bits", "write 2001:db8::/64"},
		{"10.0.0.0/33", "", "a number of bits, 0 to 32", "as 10.0.0.0/8"},
		{"10.0.0.0/08", "", "a number of bits", "as 10.0.0.0/8"},
		{"10.0.0.0/", "", "a number of bits", "as 10.0.0.0/8"},
		{"10.0.0.0/255.0.0.0", "", "a number of bits", "write 10.0.0.0/8"},
		{"192.168.1.0/255.0.255.0", "", "a number of bits", "a network is written"},
		{"10.*", "", "neither a network nor", "write 10.0.0.0/8"},
		{"10.1.", "", "neither a network nor", "write 10.1.0.0/16"},
		{"10.1.*.*", "", "neither a network nor", "write 10.1.0.0/16"},
		{"10.1/16", "", "neither a network nor", "write 10.1.0.0/16"},
		{"10.0.0.1-10.0.0.9", "", "neither", "a range"},
		{"192.0.2.1:80", "", "neither", "write 192.0.2.1"},
		{" 192.0.2.1", "", "neither", "write 192.0.2.1"},
		{"fe80::1%eth0", "", "has a zone", "write fe80::1"},
		{"", "", "neither", "a network is written"},
		{"999.0.0.0/8", "", "neither", "a network is written"},
		{"example.com", "", "neither", "a network is written"},
	} {
		p, problem, hint := Parse(test.text)
		if problem == "" && (p.String() != test.want || p != p.Masked()) || !strings.Contains(problem, test.problem) || (problem == "") != (test.problem == "") || !strings.Contains(hint, test.hint) {
			t.Errorf("%q: %v, %q, hint %q", test.text, p, problem, hint)
		}
	}
}

// draw is a network of chance, so that many of them overlap, touch, and lie at the ends.
func draw(r *rand.Rand) netip.Prefix {
	if r.IntN(2) == 0 {
		var b [4]byte
		b[0], b[3] = []byte{0, 10, 255}[r.IntN(3)], byte(r.IntN(4))
		if r.IntN(8) == 0 {
			b = [4]byte{255, 255, 255, byte(252 + r.IntN(4))}
		}
		return netip.PrefixFrom(netip.AddrFrom4(b), []int{0, 7, 8, 24, 30, 31, 32, 32}[r.IntN(8)]).Masked()
	}
	var b [16]byte
	b[0], b[7], b[8], b[15] = 0x20, byte(r.IntN(3)), byte(r.IntN(2))*255, byte(r.IntN(4))
	if r.IntN(8) == 0 {
		for i := range b {
			b[i] = 255
		}
		b[15] -= byte(r.IntN(4))
	}
	return netip.PrefixFrom(netip.AddrFrom16(b), []int{0, 1, 62, 63, 64, 65, 127, 128, 128}[r.IntN(9)]).Masked()
}

// A Set answers as a list does that is walked from one end to the other.
func TestSetAnswersAsAList(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	in := 0
	for range 3000 {
		var all []netip.Prefix
		for range r.IntN(6) {
			if p := draw(r); p.Bits() > 1 || r.IntN(4) == 0 {
				all = append(all, p)
			}
		}
		s := New(all)
		for range 20 {
			p := draw(r)
			addr := p.Addr()
			want := false
			for _, one := range all {
				want = want || one.Contains(addr)
			}
			if got := s.Contains(addr); got != want {
				t.Fatalf("seed %d: %v in %v: %v", seed, addr, all, got)
			}
			if want {
				in++
			}
			if mapped := netip.AddrFrom16(addr.As16()); s.Contains(mapped) != want {
				t.Fatalf("seed %d: %v in %v, written as IPv6", seed, mapped, all)
			}
			if got, want := s.Covers(p), covered(p, all); got != want {
				t.Fatalf("seed %d: all of %v in %v: %v", seed, p, all, got)
			}
		}
	}
	if in < 1000 {
		t.Errorf("only %d addresses were in a network", in)
	}
}

// covered looks at a network's halves, and theirs, until each is in one network or meets none.
func covered(p netip.Prefix, all []netip.Prefix) bool {
	meets := false
	for _, one := range all {
		if one.Bits() <= p.Bits() && one.Contains(p.Addr()) {
			return true
		}
		meets = meets || p.Overlaps(one)
	}
	if !meets || p.IsSingleIP() {
		return false
	}
	low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	b := p.Addr().AsSlice()
	b[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	high, _ := netip.AddrFromSlice(b)
	return covered(low, all) && covered(netip.PrefixFrom(high, p.Bits()+1), all)
}

func TestHashIsOfTheAddresses(t *testing.T) {
	of := func(texts ...string) *Set {
		var all []netip.Prefix
		for _, text := range texts {
			p, problem, _ := Parse(text)
			if problem != "" {
				t.Fatal(problem)
			}
			all = append(all, p)
		}
		return New(all)
	}
	same := of("10.0.0.0/8", "2001:db8::/32").Hash()
	if of("2001:db8::/32", "10.128.0.0/9", "10.0.0.0/9", "10.1.1.1").Hash() != same {
		t.Error("the same addresses have two hashes")
	}
	for _, other := range []*Set{of(), of("10.0.0.0/8"), of("2001:db8::/32"), of("10.0.0.0/8", "2001:db8::/33")} {
		if other.Hash() == same {
			t.Errorf("%+v has the same hash", other)
		}
	}
	var none *Set
	if none.Contains(netip.MustParseAddr("10.0.0.1")) || none.Covers(netip.MustParsePrefix("10.0.0.0/8")) || of().Contains(netip.Addr{}) || of("0.0.0.0/0").Contains(netip.Addr{}) {
		t.Error("something is in nothing")
	}
	if !of("fe80::/10").Contains(netip.MustParseAddr("fe80::1%eth0")) {
		t.Error("a zone matters")
	}
}

// FuzzParse: what is a network is written in one form, which reads as the same; what is not says why.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"10.0.0.0/8", "::ffff:10.0.0.0/104", "10.1.*", "10.0.0.1-10.0.0.2", "fe80::1%eth0", "1.2.3.4/255.0.0.0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, problem, hint := Parse(text)
		if problem != "" {
			if hint == "" {
				t.Fatalf("%q: %s, and no hint", text, problem)
			}
			return
		}
		again, problem, _ := Parse(p.String())
		if problem != "" || again != p {
			t.Fatalf("%q is %v, and that is %v: %s", text, p, again, problem)
		}
		if s := New([]netip.Prefix{p}); !s.Contains(p.Addr()) || !s.Covers(p) {
			t.Fatalf("%v is not in itself", p)
		}
	})
}

func BenchmarkContains(b *testing.B) {
	for _, n := range []int{10, 10_000, 100_000} {
		b.Run(fmt.Sprintf("networks=%d", n), func(b *testing.B) {
			var all []netip.Prefix
			for i := range n {
				all = append(all, netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(i >> 14), byte(i >> 6), byte(i << 2), 0}), 24))
			}
			s, addr := New(all), netip.MustParseAddr("1.2.4.7")
			b.ReportAllocs()
			for b.Loop() {
				s.Contains(addr)
			}
		})
	}
}
