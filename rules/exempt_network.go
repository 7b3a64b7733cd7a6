package rules

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/network"
)

// exemptNetworks are exemptions of networks, by the text of the key's other dimensions that they name.
type exemptNetworks struct {
	until   map[inNetwork]event.Micros
	lengths [2][]int // of these networks, each once: of IPv4 and of IPv6
	lists   map[string][]exemptList
}

type inNetwork struct {
	text string
	in   netip.Prefix
}

type exemptList struct {
	networks *network.Set
	until    event.Micros
}

func (x *exemptNetworks) add(text string, e *Exemption) {
	if e.list != nil {
		if x.lists == nil {
			x.lists = map[string][]exemptList{}
		}
		lists := x.lists[text]
		i := slices.IndexFunc(lists, func(l exemptList) bool { return l.networks == e.list })
		if i < 0 {
			x.lists[text] = append(lists, exemptList{e.list, e.Expires})
			return
		}
		lists[i].until = longer(lists[i].until, e.Expires, true)
		return
	}
	if x.until == nil {
		x.until = map[inNetwork]event.Micros{}
	}
	key, lengths := inNetwork{text, e.In}, &x.lengths[family(e.In)]
	if !slices.Contains(*lengths, e.In.Bits()) {
		*lengths = append(*lengths, e.In.Bits())
	}
	was, twice := x.until[key]
	x.until[key] = longer(was, e.Expires, twice)
}

func (x *exemptNetworks) none() bool { return len(x.until) == 0 && len(x.lists) == 0 }

// cover reports whether a key is exempt at a time, of which in is the address or the network, and text that
// of the other dimensions. It looks for the networks around in, of each length that there is one, however
// many there are.
func (x *exemptNetworks) cover(text []byte, in netip.Prefix, at event.Micros) bool {
	for _, bits := range x.lengths[family(in)] {
		if bits > in.Bits() {
			continue
		}
		around, _ := in.Addr().Prefix(bits) // fails only for more bits than an address has
		if until, listed := x.until[inNetwork{string(text), around}]; listed && spares(until, at) {
			return true
		}
	}
	for _, l := range x.lists[string(text)] {
		if spares(l.until, at) && l.networks.Covers(in) {
			return true
		}
	}
	return false
}

func family(p netip.Prefix) int {
	if p.Addr().Is4() {
		return 0
	}
	return 1
}

func (e *Exemption) ofNetwork() bool { return e.list != nil || e.In.IsValid() }

// dims are the dimensions that an exemption names.
func (e *Exemption) dims() (out []string) {
	for _, d := range e.Key {
		out = append(out, d.Name)
	}
	if e.ofNetwork() {
		out = append(out, "ip")
	}
	slices.Sort(out)
	return out
}

// isAddress reports whether a dimension of keys is an address, or the network of one, as ip/64 is.
func isAddress(dim string) bool {
	_, ok := event.ParseAddressDim(dim)
	return ok
}

// networkOf is the network that a key's dimension stands for: one address is a network of one. It is false
// for other dimensions.
func networkOf(d event.Dim) (p netip.Prefix, ok bool) {
	if !isAddress(d.Name) {
		return p, false
	}
	if strings.Contains(d.Value, "/") {
		p, err := netip.ParsePrefix(d.Value)
		return p, err == nil
	}
	addr, err := netip.ParseAddr(d.Value)
	return netip.PrefixFrom(addr, addr.BitLen()), err == nil
}

// networkUnder is networkOf for the key of an event with an address.
func networkUnder(dim string, ip netip.Addr) (p netip.Prefix, ok bool) {
	d, ok := event.ParseAddressDim(dim)
	if !ok || !ip.IsValid() {
		return p, false
	}
	return d.Network(ip), true
}

// holds reports whether keys with a dimension can lie in a network.
func holds(dim string, in netip.Prefix) bool {
	d, ok := event.ParseAddressDim(dim)
	return ok && d.Network(in.Addr()).Bits() >= in.Bits()
}

// under is the exemption as a rule whose keys have a shape knows it; false when it can cover none of them.
// One address is a value of the dimension ip, and a network where there are only networks, as of ip/64.
func (e Exemption) under(shape *KeyShape) (Exemption, bool) {
	dims := shape.dims()
	if i := slices.IndexFunc(e.Key, func(d event.Dim) bool { return d.Name == "ip" }); i >= 0 && !slices.Contains(dims, "ip") {
		e.In, _ = networkOf(e.Key[i])
		e.Key = slices.Delete(slices.Clone(e.Key), i, i+1)
	}
	if !shape.hasAll(e.Key) {
		return e, false
	}
	return e, !e.ofNetwork() || slices.ContainsFunc(dims, func(dim string) bool {
		return isAddress(dim) && (e.list != nil || holds(dim, e.In))
	})
}
