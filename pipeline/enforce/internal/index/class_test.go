package index

import (
	"testing"

	"github.com/tallygate/tallygate/pipeline/verdict"
)

// What is worked out once says what a verdict says.
func TestCoversAsVerdictsDo(t *testing.T) {
	for _, apis := range [][]string{
		{"*"}, {"a.*"}, {"a"}, {"a.b", "c.*"}, {"a.*", "c.*"}, {"a.*.c"}, {"*.c", "d"}, {"a.*", "a.b.*"}, {"a.b.*", "a.*"}, {"a.b*", "*"}, {},
	} {
		v := verdict.Verdict{APIs: apis}
		c := newClass(0, 0, &v, "")
		for _, api := range []string{"a", "a.b", "a.b.c", "a.x.c", "c", "c.d", "d", "x.c", "", "a.b.long-name", "c.long-name", "long.name.c"} {
			if got, want := c.Covers(api), v.Covers(api); got != want || c.CoversSurely(api) && !want {
				t.Errorf("%q covers %q: %v, surely %v, want %v", apis, api, got, c.CoversSurely(api), want)
			}
		}
	}
}
