package words

import (
	"testing"
	"time"
)

func TestWords(t *testing.T) {
	if got := Cell("a\tb\xff\u202ecd", 6); got != `a\tb\xff\u202e`+"c…" {
		t.Errorf("foreign text is %q", got)
	}
	if got := Plural(1, "key") + Plural(2, "key") + OrDash(""); got != "1 key2 keys-" {
		t.Error(got)
	}
	if got := Ended(`did you mean "limit"?`) + Ended(" wait") + Ended(" It is read."); got != `did you mean "limit"? wait. It is read.` {
		t.Error(got)
	}
	if got := Span(26*time.Hour + time.Minute); got != "1d 2h" {
		t.Error(got)
	}
}
