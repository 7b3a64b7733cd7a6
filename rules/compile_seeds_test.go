package rules

import (
	"os"
	"path/filepath"
	"testing"
)

// seeds are all rule files in testdata, and some more that are none.
func seeds(f *testing.F) [][]byte {
	out := [][]byte{
		nil,
		[]byte("&a [*a]"),
		[]byte("a: !!binary x\n? [b]\n: c\n"),
		[]byte(header + "  rules:\n    - &r {name: *r, <<: *r, when: !x 'a'}\n"),
		[]byte(header + "  rules: [{name: r, match: {api: {\"*\": 2, a.*.b*: 1Ki}}, limit: 1, per: 1y1w1d1h1m1s1ms, then: {block: 5m}}]\n"),
		[]byte(header + "  rules: [{name: r, match: {api: x}, when: 'all(split(api, \".\"), len(#) > 2) ? attrs[api] : uid in [1, nil]', limit: 1, per: 1s, then: {block: 5m}}]\n"),
	}
	paths, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		src, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		out = append(out, src)
	}
	return out
}
