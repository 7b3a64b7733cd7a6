package decision

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/pipeline/enforce/envoylimit"
)

// A proxy that reports without a key is answered OK, and its budget is never used: the log says so, once a minute.
func TestWrongReportsAreLogged(t *testing.T) {
	var out bytes.Buffer
	r := newReports()
	r.log = slog.New(slog.NewTextHandler(&out, nil))
	for _, result := range envoylimit.AllReported() {
		r.reported(result)
		r.reported(result)
	}
	for _, result := range envoylimit.AllReported() {
		wrong := 0
		if mends[result] != "" {
			wrong = 1
		}
		if n := strings.Count(out.String(), "result="+string(result)+" "); n != wrong {
			t.Errorf("%s is logged %d times, want %d:\n%s", result, n, wrong, out.String())
		}
	}
	if strings.Count(out.String(), "\n") != 4 {
		t.Errorf("the log says\n%s", out.String())
	}
}
