package windows

import "testing"

// A state's first byte says what wrote it: kinds that lay states out differently have formats of their own.
func TestEachLayoutHasItsOwnFormat(t *testing.T) {
	layouts := map[byte]string{formatDistinct & kindBits: "distinct values", formatRecent & kindBits: "distinct values that slide"}
	for i := range kinds[Tumbling:] {
		row := &kinds[int(Tumbling)+i]
		for name, k := range map[string]kind{row.name: row.amounts, row.name + ", exact": row.exact} {
			if k == nil {
				continue
			}
			oldest, newest := k.formats()
			if oldest&kindBits != newest&kindBits || oldest > newest {
				t.Errorf("%s: formats %#02x to %#02x", name, oldest, newest)
			}
			if other := layouts[oldest&kindBits]; other != "" {
				t.Errorf("%s has the format of %s", name, other)
			}
			layouts[oldest&kindBits] = name
		}
	}
}

func TestKindsAreNamedAsInRuleFiles(t *testing.T) {
	for kind, want := range map[Kind]string{0: "kind 0", Tumbling: "tumbling", Bucket: "bucket", Bucket + 200: "kind 205"} {
		if got := kind.String(); got != want {
			t.Errorf("kind %d is called %q, want %q", uint8(kind), got, want)
		}
	}
}
