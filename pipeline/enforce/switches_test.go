package enforce

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// Off names what turns enforcement off, the first of several, and since when, whatever is added meanwhile.
func TestOff(t *testing.T) {
	file := filepath.Join(t.TempDir(), "off")
	table := running(t, Config{OffFile: file})
	if cause, since := table.Off(); cause != "" || !since.IsZero() {
		t.Errorf("it is off by %q since %v", cause, since)
	}
	before := time.Now()
	table.SetEnabled(false)
	cause, began := table.Off()
	if cause != OffProgram || began.Before(before) || began.After(time.Now()) {
		t.Errorf("it is off by %q since %v", cause, began)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "the file is the cause", func() bool { cause, _ := table.Off(); return cause == OffFile })
	if _, since := table.Off(); !since.Equal(began) {
		t.Errorf("it is off since %v, was since %v", since, began)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "the program is the cause", func() bool { cause, _ := table.Off(); return cause == OffProgram })
	table.SetEnabled(true)
	if cause, since := table.Off(); cause != "" || !since.IsZero() {
		t.Errorf("it is on, and off by %q since %v", cause, since)
	}
	t.Setenv("TALLYGATE_ENFORCE", "off")
	table = newTable(t)
	if cause, since := table.Off(); cause != OffEnvironment || since.Before(began) {
		t.Errorf("it is off by %q since %v", cause, since)
	}
}
