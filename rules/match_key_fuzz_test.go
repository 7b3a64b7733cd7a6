package rules

import (
	"net/netip"
	"testing"

	"github.com/tallygate/tallygate/event"
)

// FuzzKeys: whatever an event has, the matcher's key, event.Event.Dim and what somebody who writes the
// values as they came makes of them are one text. So a command and a check find what was counted.
func FuzzKeys(f *testing.F) {
	f.Add("login", "42", "ten", []byte{10, 1, 2, 3}, uint8(24), uint8(64))
	f.Add("search.query", "u\xff", "a&b=c", []byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 15: 1}, uint8(32), uint8(56))
	f.Add("a b", "", "", []byte{10: 0xff, 11: 0xff, 12: 10, 13: 1, 14: 2, 15: 3}, uint8(8), uint8(128))
	f.Add("漢", "x", "y", []byte{}, uint8(32), uint8(32))
	f.Fuzz(func(t *testing.T, api, uid, attr string, address []byte, four, six uint8) {
		written := event.Event{API: api, UID: uid, Cost: event.One, Time: event.NoTime, BrokerTime: event.NoTime}
		if attr != "" {
			written.Attrs = []event.Attr{{Name: "a", Value: event.StringValue(attr)}}
		}
		values := map[string]string{"api": api, "uid": uid, "attrs.a": attr, "all": "true"}
		if ip, ok := netip.AddrFromSlice(address); ok {
			values["ip"], written.IP = ip.String(), ip.Unmap()
		}
		written.Canonicalize()
		decoded, err := event.NewDecoder().Decode(event.AppendJSON(nil, &written), nil, nil, nil)
		if err != nil || len(decoded) != 1 {
			if _, err := event.NewDim("api", api); err == nil {
				t.Fatalf("no event has the API %q, and NewDim takes it", api)
			}
			return
		}
		e := &decoded[0]
		names := []string{"all", "api", "attrs.a", "ip", "ip/64", "uid", bitsName(four, six)}
		for _, name := range names {
			got, there := keyText(e, name)
			value, isIn := values[name], false
			if _, isAddress := event.ParseAddressDim(name); isAddress {
				value = values["ip"]
			}
			d, err := event.NewDim(name, value)
			if err == nil {
				isIn = true
				if again, err := event.NewDim(name, d.Value); err != nil || again != d {
					t.Fatalf("%s=%q becomes %q, and that %q: %v", name, value, d.Value, again.Value, err)
				}
				if c := event.CanonicalDim(name, value); c != d.Value {
					t.Fatalf("%s=%q is %q for a check, %q for a command", name, value, c, d.Value)
				}
			}
			if of, ok := e.Dim(name); ok != there || ok && of != d.Value {
				t.Fatalf("%s: the event has %q, a command %q", name, of, d.Value)
			}
			if there != isIn || there && got != event.FormatKey([]event.Dim{d}) {
				t.Fatalf("%s=%q: the matcher makes %q, a command %v (%v)", name, value, got, d, err)
			}
		}
	})
}

// bitsName is the name of a dimension of addresses with any bits that there are.
func bitsName(four, six uint8) string {
	shapes := []string{"ip/8", "ip/24", "ip/31", "ip/33", "ip/56", "ip/127", "ip/16/48", "ip/24/128", "ip/32/32", "ip/8/32", "ip/31/127"}
	return shapes[(int(four)*7+int(six))%len(shapes)]
}

// keyText returns the matcher's key of an event for one dimension.
func keyText(e *event.Event, name string) (string, bool) {
	set := &Set{Shapes: []*KeyShape{newShape([]string{name})}}
	m := set.NewMatcher()
	m.begin()
	var key shapeKey
	m.keys.make(&key, e, set.Shapes[0])
	return string(key.text), key.there
}
