package testrun_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// failing is a test that may fail.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper() {}
func (f *failing) Errorf(format string, args ...any) {
	for _, a := range args {
		format += " " + strings.TrimSpace(a.(string))
	}
	f.said = format
}

// A golden file that differs fails a test, which shows the first line that does.
func TestGoldenDiffers(t *testing.T) {
	if testrun.Rewriting() {
		t.Skip("it would write")
	}
	path := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(path, []byte("# Adds.\n\n> 1 2\n3\n\n> 2\n> 3\n5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := func(offset int) string {
		f := &failing{TB: t}
		testrun.Script(f, path, func(question []string) string {
			n := offset
			for _, number := range strings.Fields(strings.Join(question, " ")) {
				n += int(number[0] - '0')
			}
			return string(rune('0' + n))
		})
		return f.said
	}
	if said := sum(0); said != "" {
		t.Errorf("all is as it was: %s", said)
	}
	if said := sum(1); !strings.Contains(said, "from line 4 on") || !strings.Contains(said, "go test -run") {
		t.Errorf("it says %q", said)
	}
}

func TestSteadyAnswers(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Retry-After", "1")
	w.Header().Set("Date", "now")
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = w.WriteString(`{"at":"2026-11-21T10:00:01.5Z","peer":"127.0.0.1:4711","id":"7KQ2LUJ4GJ5MQK5Y2ZJ3RSDFQA","rate":1.5e3,"count":3}`)
	const want = "429\nRetry-After: 1\n" + `{"at":"<time>","peer":"<address>","id":"<id>","rate":<n>,"count":3}`
	if got := testrun.Steady(testrun.Answer(t, w.Result()), "rate"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
