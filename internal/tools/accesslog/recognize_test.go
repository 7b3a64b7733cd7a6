package accesslog_test

import (
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/tools/accesslog"
)

// A file that is compressed, or in UTF-16, was so many lines of an unknown format.
func TestFilesThatAreNoTextAreNamed(t *testing.T) {
	for value, want := range map[string]string{
		"\x1f\x8b\x08\x00\x00\x00\n":                  "compressed by gzip",
		"\xff\xfe{\x00\"\x00\n":                       "UTF-16",
		"\xef\xbb\xbf{\"uid\":\"1\",\"api\":\"a\"}\n": "byte order mark",
	} {
		_, _, err := accesslog.NewReader(strings.NewReader(value), accesslog.Auto).Next()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", value, err, want)
		}
	}
}
