package event

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

// What a Decoder remembers of the objects before changes nothing: records whose members come in other
// orders, with spaces, escapes and names of their own, are decoded as by a new one.
func TestKnownNamesChangeNothing(t *testing.T) {
	t.Parallel()
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, 1))
	members := []string{`"api":"search.query"`, `"uid":"42"`, `"id":"e1"`, `"ip":"203.0.113.7"`, `"outcome":"success"`, `"outcome" : "denied"`,
		`"\u0075id":"43"`, `"cost":2.5`, `"userid":"7"`, `"time":1764000000000`, `"attrs":{"a":1,"b":"x","c":true}`, `"attrs":{"b":"x","a":1.50}`,
		`"attrs":{"ü":1,"a":"é"}`, `"attrs":{"a":1,"a":2}`, `"` + strings.Repeat("n", 60) + `":1`, `"permit":"p","permit_at":{"r":5}`, `"uid":7`}
	d := NewDecoder()
	for i := range 20_000 {
		rng.Shuffle(len(members), func(a, b int) { members[a], members[b] = members[b], members[a] })
		record := "{" + strings.Join(members[:rng.IntN(6)], []string{",", ", ", " ,"}[rng.IntN(3)]) + "}"
		got, err := d.Decode([]byte(record), nil, nil, nil)
		want, wantErr := NewDecoder().Decode([]byte(record), nil, nil, nil)
		if g, w := fmt.Sprintf("%+v %v", got, err), fmt.Sprintf("%+v %v", want, wantErr); g != w {
			t.Fatalf("seed %d, record %d: %s\n got %s\nwant %s", seed, i, record, g, w)
		}
	}
}

// The names that are remembered are bounded, whatever comes.
func TestKnownNamesAreBounded(t *testing.T) {
	t.Parallel()
	d := NewDecoder()
	for i := range 3 {
		var members []string
		for k := range 500 {
			members = append(members, fmt.Sprintf(`"name-%d-%d":1`, i, k))
		}
		if _, err := d.Decode([]byte(`{"api":"a",`+strings.Join(members, ",")+`}`), nil, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	size := 0
	for _, m := range d.fields {
		size += cap(m.text)
	}
	if len(d.fields) > maxKnown || size > maxKnown*2*maxKnownName {
		t.Errorf("%d names in %d bytes are remembered", len(d.fields), size)
	}
}

// parseIPv4 takes what netip.ParseAddr takes, but for IPv6.
func FuzzParseIPv4(f *testing.F) {
	for _, s := range []string{"203.0.113.7", "0.0.0.0", "255.255.255.255", "256.1.1.1", "01.2.3.4", "1.2.3", "1.2.3.4.5", "1..2.3", "1.2.3.4 ", "", ".", "1.2.3.", "::1", "00.0.0.0", "1.2.3.0004"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := netip.ParseAddr(s)
		got, ok := parseIPv4(s)
		if ok != (err == nil && want.Is4()) || ok && got != want {
			t.Errorf("%q: %v %v, want %v %v", s, got, ok, want, err)
		}
	})
}
