package when

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

func TestInNetwork(t *testing.T) {
	none := &event.Event{API: "x", Cost: event.One}
	at := func(ip string, attrs ...event.Attr) *event.Event {
		e := &event.Event{API: "x", Cost: event.One, Attrs: attrs}
		if ip != "" {
			e.IP = netip.MustParseAddr(ip)
		}
		return e
	}
	via := func(text string) *event.Event { return at("", attr("via", event.String, text)) }
	for _, test := range []struct {
		when string
		e    *event.Event
		want bool
	}{
		{`inNetwork(ip, "192.0.2.0/24")`, at("192.0.2.255"), true},
		{`inNetwork(ip, "192.0.2.0/24")`, at("192.0.3.0"), false},
		{`inNetwork(ip, "192.0.2.0/24")`, at("::ffff:192.0.2.7"), true},
		{`inNetwork(ip, "::ffff:192.0.2.0/120")`, at("192.0.2.7"), true},
		{`inNetwork(ip, "::/0")`, at("192.0.2.7"), false},
		{`inNetwork(ip, "192.0.2.7")`, at("192.0.2.7"), true},
		{`inNetwork(ip, "office")`, at("10.1.1.1"), true},
		{`inNetwork(ip, "office", "192.0.2.7", "198.51.100.0/24")`, at("198.51.100.1"), true},
		{`inNetwork(ip, "office", "192.0.2.7")`, at("2001:db8:ffff::1"), true},
		{`inNetwork(ip, "office", "192.0.2.7")`, at("2001:db9::"), false},
		{`inNetwork(ip, "office") and inNetwork(ip, "10.1.0.0/16")`, at("10.2.0.0"), false},
		{`inNetwork(ip, "0.0.0.0/0", "::/0")`, none, false},
		{`not inNetwork(ip, "0.0.0.0/0", "::/0")`, none, true},
		{`ip | inNetwork("10.0.0.0/8")`, at("10.1.1.1"), true},
		{`let a = ip; inNetwork(a, "10.0.0.0/8")`, at("10.1.1.1"), true},
		{`inNetwork(ip, "10.0.0.0/8") and ip == "10.1.1.1"`, at("10.1.1.1"), true},
		{`inNetwork(attrs.via, "10.0.0.0/8")`, via("10.1.1.1"), true},
		{`inNetwork(attrs.via, "10.0.0.0/8")`, via("::ffff:10.1.1.1"), true},
		{`inNetwork(attrs.via, "10.0.0.0/8")`, via("10.1.1.1, 192.0.2.1"), false},
		{`inNetwork(attrs.via, "10.0.0.0/8")`, via("10.1.1.1:80"), false},
		{`not inNetwork(attrs.via, "10.0.0.0/8")`, via("unknown"), true},
		{`inNetwork(attrs.via, "10.0.0.0/8")`, at("10.1.1.1", attr("via", event.Number, "10")), false},
		{`inNetwork(attrs.via, "10.0.0.0/8")`, at("10.1.1.1"), false},
		{`inNetwork(attrs.via ?? ip, "10.0.0.0/8")`, at("10.1.1.1"), true},
		{`any(split(attrs.via, ","), inNetwork(trim(#), "10.0.0.0/8"))`, via("192.0.2.1, 10.1.1.1"), true},
		{`inNetwork(string(uid), "10.0.0.0/8")`, none, false},
	} {
		ev, p, parts := mayEvaluator(t, test.when)
		ev.Next()
		if got, ok := ev.Holds(p, test.e, 0); !ok || got != test.want {
			t.Errorf("%s of %v %v: %v, %v", test.when, test.e.IP, test.e.Attrs, got, ok)
		}
		if may := ev.May(parts, test.e, 0); may == No && test.want || may == Yes && !test.want {
			t.Errorf("%s of %v %v: as far as is known %v", test.when, test.e.IP, test.e.Attrs, may)
		}
	}
}

func TestInNetworkRefuses(t *testing.T) {
	for _, test := range []struct {
		when, message, hint string
		at                  int
	}{
		{`inNetwork(ip)`, "takes an address and networks", "as in inNetwork(", 0},
		{`inNetwork()`, "takes an address and networks", "as in inNetwork(", 0},
		{`inNetwork(ip, "10.0.0.1/8")`, "only the first 8 bits", "write 10.0.0.0/8", 14},
		{`cost > 1 and inNetwork(ip, "10.0.0.0/8", "10.*")`, "neither a network nor an address", "write 10.0.0.0/8", 41},
		{`inNetwork(ip, "ofice")`, `no list of networks "ofice"`, "spec.networks", 14},
		{`inNetwork(ip, "")`, "neither a network nor an address", "10.0.0.0/8", 14},
		{`inNetwork(ip, office)`, "not office", `write "office"`, 14},
		{`inNetwork(ip, attrs.net)`, "a text in quotes", "known before", 20},
		{`inNetwork(ip, ["10.0.0.0/8"])`, "a text in quotes", "side by side", 14},
		{`inNetwork("10.0.0.0/8", ip)`, "a text in quotes", "stands first", 24},
		{`inNetwork(ip, 10)`, "a text in quotes", "known before", 14},
		{`inNetwork(cost, "10.0.0.0/8")`, "cost is a number", "inNetwork(ip", 10},
		{`inNetwork(time, "office")`, "time is a time", "inNetwork(ip", 10},
		{`inNetwork("10.0.0.1", "10.0.0.0/8")`, "the same at each event", "stands first", 10},
		{`inNetwork(ip, "10.0.0.0/8") == 1`, "mismatched types", "", 28},
		{`ipInRange(ip, "10.0.0.0/8")`, "did you mean inNetwork?", "inNetwork(ip", 0},
		{`ip in "10.0.0.0/9"`, "ip is one address", `write inNetwork(ip, "10.0.0.0/9")`, 6},
		{`ip == "10.0.0.1/8"`, "ip is one address", `write inNetwork(ip, "10.0.0.0/8")`, 6},
	} {
		_, mistakes := Compile(test.when, utc{})
		if len(mistakes) != 1 || !strings.Contains(mistakes[0].Message, test.message) || !strings.Contains(mistakes[0].Hint, test.hint) || mistakes[0].At != test.at {
			t.Errorf("%s: %+v", test.when, mistakes)
		}
	}
	p, mistakes := Compile(`inNetwork(ip, "10.0.0.1/8", "office", "x", "10.*") and cost > 1`, utc{})
	if p != nil || len(mistakes) != 3 || mistakes[0].At != 14 || mistakes[1].At != 38 || mistakes[2].At != 43 {
		t.Errorf("%v: %+v", p, mistakes)
	}
}

func TestInNetworkUsesItsAddress(t *testing.T) {
	_, p, _ := mayEvaluator(t, `inNetwork(ip, "office") or inNetwork(attrs.via, "office")`)
	for name, want := range map[string]bool{"ip": true, "attrs.via": true, "uid": false, inNetwork: false, addressVariable: false} {
		if p.Uses(name) != want {
			t.Errorf("uses %s: %t", name, !want)
		}
	}
}

// What is not known before the action may be in any network.
func TestInNetworkOfAnAddressThatIsNotKnown(t *testing.T) {
	known, inside := &event.Event{API: "x", Cost: event.One}, &event.Event{API: "x", Cost: event.One, IP: netip.MustParseAddr("10.0.0.1")}
	for source, want := range map[string][2]Answer{
		`inNetwork(ip, "office")`:                               {Maybe, Yes},
		`not inNetwork(ip, "office")`:                           {Maybe, No},
		`not inNetwork(ip, "office") and outcome == "x"`:        {Maybe, No},
		`inNetwork(ip, "office") or inNetwork(attrs.v, "::/0")`: {Maybe, Maybe},
	} {
		ev, _, parts := mayEvaluator(t, source)
		for i, e := range []*event.Event{known, inside} {
			ev.Next()
			if got := ev.May(parts, e, event.NoTime); got != want[i] {
				t.Errorf("%s of %v: %v", source, e.IP, got)
			}
		}
	}
}

func TestInNetworkAllocatesNothing(t *testing.T) {
	ev, p, _ := mayEvaluator(t, `inNetwork(ip, "office", "192.0.2.0/24") and not inNetwork(ip, "2001:db8::/64")`)
	e := &event.Event{API: "x", Cost: event.One, IP: netip.MustParseAddr("2001:db8:0:1::7")}
	n := testrun.Allocs(200, func() {
		ev.Next()
		if holds, ok := ev.Holds(p, e, 0); !holds || !ok {
			t.Fatal("it does not hold")
		}
	})
	if n > 1 { // the list of arguments, which expr makes for the calls of a run
		t.Errorf("%v allocations an event", n)
	}
}

// A predicate over networks of chance says what netip says of each of them.
func TestInNetworkAsNetipSays(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	addr := func() netip.Addr {
		if r.IntN(2) == 0 {
			return netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(2)), byte(r.IntN(256))})
		}
		return netip.AddrFrom16([16]byte{0x20, 1, 15: byte(r.IntN(256))})
	}
	for range 300 {
		var all []netip.Prefix
		source := "inNetwork(ip"
		for range 1 + r.IntN(6) {
			a := addr()
			p := netip.PrefixFrom(a, a.BitLen()-r.IntN(9)).Masked()
			all = append(all, p)
			source += fmt.Sprintf(", %q", p)
		}
		ev, p, _ := mayEvaluator(t, source+")")
		for range 20 {
			e := &event.Event{API: "x", Cost: event.One, IP: addr()}
			want := false
			for _, one := range all {
				want = want || one.Contains(e.IP)
			}
			ev.Next()
			if got, _ := ev.Holds(p, e, 0); got != want {
				t.Fatalf("seed %d: %s) of %v: %v", seed, source, e.IP, got)
			}
		}
	}
}
