package rules

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

func TestExemptionsOfNetworks(t *testing.T) {
	ip, net := func(v string) event.Dim { return event.Dim{Name: "ip", Value: v} }, func(v string) event.Dim { return event.Dim{Name: "ip/64", Value: v} }
	uid := event.Dim{Name: "uid", Value: "2"}
	for _, tt := range []struct {
		key, exempt string
		dims        []event.Dim
		want        bool
	}{
		{"ip", `{ip: 192.0.2.0/24, reason: r}`, []event.Dim{ip("192.0.2.255")}, true},
		{"ip", `{ip: 192.0.2.0/24, reason: r}`, []event.Dim{ip("192.0.3.0")}, false},
		{"ip", `{ip: "::ffff:192.0.2.0/120", reason: r}`, []event.Dim{ip("192.0.2.1")}, true},
		{"ip", `{ip: 0.0.0.0/0, reason: r}`, []event.Dim{ip("192.0.2.1")}, true},
		{"ip", `{ip: "::/0", reason: r}`, []event.Dim{ip("192.0.2.1")}, false},
		{"ip", `{ip: "2001:db8::/33", reason: r}`, []event.Dim{ip("2001:db8:7fff::1")}, true},
		{"ip", `{ip: "2001:db8::/33", reason: r}`, []event.Dim{ip("2001:db8:8000::1")}, false},
		{"ip/64", `{ip: "2001:db8::/33", reason: r}`, []event.Dim{net("2001:db8:0:7::/64")}, true},
		{"ip/64", `{ip: "2001:db8:0:7::/64", reason: r}`, []event.Dim{net("2001:db8:0:7::/64")}, true},
		{"ip/64", `{ip: "2001:db8:0:7::/64", reason: r}`, []event.Dim{net("2001:db8:0:8::/64")}, false},
		{"ip/64", `{ip: 192.0.2.0/24, reason: r}`, []event.Dim{net("192.0.2.1")}, true},
		{"ip/64", `{ip: 192.0.2.1, reason: r}`, []event.Dim{net("192.0.2.1")}, true},
		{"ip/64", `{ip: 192.0.2.1, reason: r}`, []event.Dim{net("192.0.2.2")}, false},
		{"[ip, ip/64]", `{ip: "2001:db8::1", reason: r}`, []event.Dim{ip("2001:db8::1"), net("2001:db8::/64")}, true},
		{"[ip, ip/64]", `{ip: "2001:db8::/126", reason: r}`, []event.Dim{ip("2001:db8::1"), net("2001:db8::/64")}, true},
		{"[uid, ip]", `{ip: 192.0.2.0/24, reason: r}`, []event.Dim{ip("192.0.2.1"), uid}, true},
		{"[uid, ip]", `{uid: 2, ip: 192.0.2.0/24, reason: r}`, []event.Dim{ip("192.0.2.1"), uid}, true},
		{"[uid, ip]", `{uid: 3, ip: 192.0.2.0/24, reason: r}`, []event.Dim{ip("192.0.2.1"), uid}, false},
		{"ip", `{ip: 192.0.2.0/24, reason: r, expires: "2026-11-21T12:00:00Z"}`, []event.Dim{ip("192.0.2.1")}, false},
		{"ip", `{ip: 192.0.2.0/24, reason: r, expires: "2026-11-21T12:00:00.000001Z"}`, []event.Dim{ip("192.0.2.1")}, true},
		{"ip", `{ip: 192.0.2.0/24, reason: r, expires: "2026-01-01T00:00:00Z"}, {ip: 192.0.0.0/16, reason: r}`, []event.Dim{ip("192.0.2.1")}, true},
		{"ip", `{ip: 192.0.2.0/24, reason: r}, {ip: 192.0.2.0/24, reason: r, expires: "2026-01-01T00:00:00Z"}`, []event.Dim{ip("192.0.2.1")}, true},
	} {
		if got := isExempt(t, tt.key, tt.exempt, tt.dims...); got != tt.want {
			t.Errorf("%s, exempt %s, key %v: %v, want %v", tt.key, tt.exempt, tt.dims, got, tt.want)
		}
	}
}

// drawnExemption is an exemption of chance, and what it says in as few words as can be.
type drawnExemption struct {
	text     string
	uid      string // "": any
	networks []netip.Prefix
	until    event.Micros
}

// covers walks all that there is to know of an exemption.
func (x *drawnExemption) covers(uid string, in netip.Prefix, at event.Micros) bool {
	if x.uid != "" && x.uid != uid || x.until != event.NoTime && at >= x.until {
		return false
	}
	return slices.ContainsFunc(x.networks, func(p netip.Prefix) bool { return p.Bits() <= in.Bits() && p.Contains(in.Addr()) })
}

// drawLists are lists of networks that do not make up a larger one together.
var drawLists = map[string][]string{"office": {"10.0.0.0/31", "10.0.0.4", "2001:db8::/62"}, "cloud": {"10.0.1.0/25", "2001:db8:0:4::/64", "2001:db8:0:6::1"}}

func drawExemption(r *rand.Rand, wide bool) (x drawnExemption) {
	x.text, x.until = "{reason: r", event.NoTime
	name := []string{"", "office", "cloud"}[r.IntN(3)]
	for _, text := range drawLists[name] {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			addr := netip.MustParseAddr(text)
			p = netip.PrefixFrom(addr, addr.BitLen())
		}
		x.networks = append(x.networks, p)
	}
	if name == "" {
		addr, bits := drawAddress(r), 22+r.IntN(11)
		if addr.Is6() {
			bits = []int{60, 61, 62, 63, 64, 65, 127, 128}[r.IntN(8)]
		}
		if addr.Is6() && wide {
			bits = min(bits, 64)
		}
		p, _ := addr.Prefix(bits)
		name, x.networks = p.String(), []netip.Prefix{p}
		if p.IsSingleIP() && r.IntN(2) == 0 {
			name = p.Addr().String()
		}
	}
	x.text += fmt.Sprintf(", ip: %q", name)
	if r.IntN(3) == 0 {
		x.uid = fmt.Sprint("u", r.IntN(2))
		x.text += ", uid: " + x.uid
	}
	if r.IntN(3) == 0 {
		x.until = noon + event.Micros(r.IntN(3)-1)*event.Hour
		x.text += ", expires: " + x.until.Time().Format(time.RFC3339)
	}
	x.text += "}"
	return x
}

func drawAddress(r *rand.Rand) netip.Addr {
	if r.IntN(2) == 0 {
		return netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(3)), byte(r.IntN(6))})
	}
	return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 7: byte(r.IntN(9)), 15: byte(r.IntN(3))})
}

// Whatever is exempt, a key, an event and a request are exempt as a walk over all exemptions says.
func TestExemptNetworksAsAWalkFindsThem(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	spared := 0
	for range 300 {
		network := r.IntN(2) == 0
		dim := "ip"
		if network {
			dim = "ip/64"
		}
		var all []drawnExemption
		var texts []string
		for range 1 + r.IntN(6) {
			x := drawExemption(r, network)
			all, texts = append(all, x), append(texts, x.text)
		}
		set := compiled(t, header+"  networks: {office: ["+quotedList(drawLists["office"])+"], cloud: ["+quotedList(drawLists["cloud"])+"]}\n"+
			"  rules: [{name: a, key: [uid, "+dim+"], match: {api: x}, limit: 1, per: 1h, strict: true, exempt: ["+strings.Join(texts, ", ")+"]}]\n")
		requests := NewRequests(set.Strict())
		for range 30 {
			uid, addr, at := fmt.Sprint("u", r.IntN(3)), drawAddress(r), noon+event.Micros(r.IntN(5)-2)*event.Hour/2
			in := netip.PrefixFrom(addr, addr.BitLen())
			if network && addr.Is6() {
				in, _ = addr.Prefix(64)
			}
			want := slices.ContainsFunc(all, func(x drawnExemption) bool { return x.covers(uid, in, at) })
			e := &event.Event{API: "x", UID: uid, IP: addr, Cost: event.One}
			works := set.NewMatcher().Match(e, at)
			key, err := event.ParseKey(works[0].Key)
			if err != nil {
				t.Fatal(err)
			}
			if got := set.Rules[0].exemptKeys.covers(key, at); got != want {
				t.Fatalf("seed %d: %s by %s: the key %s is exempt: %v", seed, texts, dim, works[0].Key, got)
			}
			if wants := requests.Wants(e, at); wants[0].Exempt != want {
				t.Fatalf("seed %d: %s by %s: a request of %s, %v is exempt: %v", seed, texts, dim, uid, addr, wants[0].Exempt)
			}
			if want {
				spared++
			}
		}
	}
	if spared < 500 {
		t.Errorf("%d were exempt", spared)
	}
}

func quotedList(texts []string) string {
	var out []string
	for _, text := range texts {
		out = append(out, fmt.Sprintf("%q", text))
	}
	return strings.Join(out, ", ")
}

const listRules = `  networks: {office: office.txt, other: [198.51.100.0/24]}
  exempt: [{ip: office, reason: ours}]
  rules:
    - {name: a, key: ip, match: {api: x}, limit: 5, per: 1h, then: {block: 1m}}
    - {name: b, match: {api: x}, when: 'not inNetwork(ip, "office", "other")', limit: 5, per: 1h, then: {block: 1m, apis: y}}
`

func compiledWithOffice(t testing.TB, office string) *Set {
	t.Helper()
	set, err := CompileWith("rules.yaml", []byte(header+listRules), func(name string) ([]byte, error) { return []byte(office), nil })
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestNetworksFromAFile(t *testing.T) {
	set := compiledWithOffice(t, "# our own\n\n  10.0.0.0/8   # Berlin\r\n2001:db8::/32\n192.0.2.7")
	if len(set.Warnings) > 1 || string(set.Files["office.txt"]) == "" { // one that b blocks more than it counts
		t.Errorf("%v, files %v", set.Warnings, set.Files)
	}
	m := set.NewMatcher()
	for ip, want := range map[string]int{"10.1.1.1": 1, "2001:db8::1": 1, "192.0.2.7": 1, "198.51.100.1": 1, "192.0.2.8": 2} {
		e := &event.Event{API: "x", UID: "u", IP: netip.MustParseAddr(ip), Cost: event.One}
		if works := m.Match(e, noon); len(works) != want {
			t.Errorf("%s counts under %d keys", ip, len(works))
		}
		key := []event.Dim{{Name: "ip", Value: ip}}
		if got := set.Rules[0].exemptKeys.covers(key, noon); got != (want == 1 && ip != "198.51.100.1") {
			t.Errorf("%s is exempt: %v", ip, got)
		}
	}
	same, other := compiledWithOffice(t, "192.0.2.7\n2001:db8::/32\n10.0.0.0/9\n10.128.0.0/9\n"), compiledWithOffice(t, "10.0.0.0/8\n")
	if same.Hash == set.Hash || same.Limits[0].judged != set.Limits[0].judged {
		t.Error("the same addresses in other words are another version that judges as before")
	}
	if other.Limits[0].judged == set.Limits[0].judged || other.Limits[1].judged != set.Limits[1].judged {
		t.Error("another list is judged anew where it exempts keys, and only there")
	}
	for i := range set.Limits {
		if other.Limits[i].Hash != set.Limits[i].Hash {
			t.Error("another list starts a count anew")
		}
	}
	if empty := compiledWithOffice(t, "# none\n"); empty.Rules[0].exemptKeys.covers([]event.Dim{{Name: "ip", Value: "10.1.1.1"}}, noon) {
		t.Error("a list without networks exempts")
	}
}

func TestMistakesInAFileOfNetworks(t *testing.T) {
	told := func(office string) Errors {
		_, err := CompileWith("rules.yaml", []byte(header+"  networks: {office: office.txt}\n  rules: [{name: a, key: ip, match: {api: x}, limit: 5, per: 1h, exempt: [{ip: office, reason: x}], then: {block: 1m}}]\n"),
			func(string) ([]byte, error) { return []byte(office), nil })
		mistakes, _ := errors.AsType[Errors](err)
		return mistakes
	}
	mistakes := told("10.0.0.0/8\n\t10.0.0.1/8 # Berlin\n# 10.*\n10.0.0.0/8, 192.0.2.1\n  exämple\n")
	var got []string
	for _, m := range mistakes {
		got = append(got, fmt.Sprintf("%s:%d:%d: %s | %s | %s", m.File, m.Line, m.Column, m.Message, m.Hint, m.SourceLine))
	}
	want := []string{
		`office.txt:2:2: "10.0.0.1/8" is an address within its network: only the first 8 bits may be set | write 10.0.0.0/8, or 10.0.0.1 for the one address | ` + "\t10.0.0.1/8 # Berlin",
		`office.txt:4:1: "10.0.0.0/8, 192.0.2.1" is no network: behind the / stands a number of bits, 0 to 32 | a line has one network; a comment stands behind a # | 10.0.0.0/8, 192.0.2.1`,
		`office.txt:5:3: "exämple" is neither a network nor an address | a network is written as 10.0.0.0/8 or 2001:db8::/32, one address as 192.0.2.1 |   exämple`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	if m := told(strings.Repeat("x\n", 1000)); len(m) != maxBadLines+1 || !strings.Contains(m[maxBadLines].Message, "only the first 20") {
		t.Errorf("%d mistakes of a file of another kind, the last one %v", len(m), m[len(m)-1])
	}
	if m := told(""); len(m) != 1 || m[0].File != "rules.yaml" || !strings.Contains(m[0].Message, "office.txt is empty") {
		t.Errorf("%v", m)
	}
	if m := told("10.0.0.0/8\n\xff\n"); len(m) != 1 || m[0].File != "office.txt" || m[0].Line != 2 || !strings.Contains(m[0].Message, "UTF-8") {
		t.Errorf("%v", m)
	}
	if m := told(strings.Repeat("10.0.0.1\n", maxNetworks)); len(m) != 0 {
		t.Errorf("%v", m)
	}
	if m := told(strings.Repeat("10.0.0.1\n", maxNetworks+5)); len(m) != 1 || m[0].Line != maxNetworks+1 || !strings.Contains(m[0].Message, "more than 100000") {
		t.Errorf("%v", m)
	}
}

func TestARequestOfAnExemptNetworkAllocatesNothing(t *testing.T) {
	set := compiled(t, header+"  networks: {office: [10.0.0.0/8]}\n  exempt: [{ip: office, reason: r}, {ip: \"2001:db8::/48\", uid: u, reason: r}]\n"+
		"  rules: [{name: a, key: [uid, ip/64], match: {api: x}, limit: 1, per: 1h, strict: true}]\n")
	q := NewRequests(set.Strict())
	for ip, want := range map[string]bool{"10.1.1.1": true, "2001:db8::1": true, "192.0.2.1": false} {
		e := &event.Event{API: "x", UID: "u", IP: netip.MustParseAddr(ip), Cost: event.One}
		allocs := testrun.Allocs(100, func() {
			if wants := q.Wants(e, noon); len(wants) != 1 || wants[0].Exempt != want {
				t.Fatalf("%s: %+v", ip, wants)
			}
		})
		if allocs > 0 {
			t.Errorf("%s: %v allocations", ip, allocs)
		}
	}
}

// A key's exemption is found without a walk over all of them.
func BenchmarkExemptNetworks(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprintf("exemptions=%d", n), func(b *testing.B) {
			var all []Exemption
			for i := range n {
				p := netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(i >> 14), byte(i >> 6), byte(i << 2), 0}), 22+i%8).Masked()
				all = append(all, Exemption{In: p, Expires: event.NoTime})
			}
			x := newExemptIndex(all)
			key := []event.Dim{{Name: "ip", Value: "203.0.113.7"}}
			b.ReportAllocs()
			for b.Loop() {
				if x.covers(key, noon) {
					b.Fatal("it is exempt")
				}
			}
		})
	}
}
