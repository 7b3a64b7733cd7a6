package normalize_test

import (
	"fmt"
	"testing"

	"github.com/tallygate/tallygate/pipeline/normalize"
)

func ExampleKey() {
	fmt.Println(normalize.Key(" Spring10\n"), normalize.Key("Jose\u0301@Example.com") == normalize.Key("JOS\u00c9@example.com"))
	// Output: spring10 true
}

// A key that has its form keeps it: a service may normalize what another one did already.
func FuzzKeysHaveOneForm(f *testing.F) {
	for _, s := range []string{"", " A ", "\u0130", "I\u0307", "\u212b", "\u03a3\u0345", "\xff", "\u1e9e", "\u0390", "\u1fd3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		once := normalize.Key(s)
		if twice := normalize.Key(once); twice != once {
			t.Errorf("%q is %q, and that %q", s, once, twice)
		}
	})
}
