package ops

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testca"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// aLog is the log of a program with some options, which were parsed.
func aLog(t *testing.T) (o *Options, log *bytes.Buffer) {
	t.Helper()
	o = NewOptions("test", "", new(bytes.Buffer), testrun.NoEnv)
	logs := o.Log()
	if err := o.Parse([]string{"--log-format", "text"}); err != nil {
		t.Fatal(err)
	}
	log = new(bytes.Buffer)
	if _, err := logs.Build(log); err != nil {
		t.Fatal(err)
	}
	return o, log
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A secret that was replaced by nothing is used on. The log says so once, names no secret, and says when it is good
// again.
func TestASecretThatCannotBeReadIsComplainedOf(t *testing.T) {
	t.Parallel()
	o, log := aLog(t)
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "first-secret\n")
	now, err := o.SecretNow("TALLYGATE_TOKEN", file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, "")
	for range 3 {
		if is := now(); is != "first-secret" {
			t.Fatalf("the secret is %q", is)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "is empty") {
		t.Fatalf("the log, of %d lines:\n%s", n, log)
	}
	write(t, file, "second-secret\n")
	for range 2 {
		if is := now(); is != "second-secret" {
			t.Fatalf("the secret is %q", is)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "level=INFO") || strings.Contains(log.String(), "-secret") {
		t.Fatalf("the log, of %d lines:\n%s", n, log)
	}
}

// So is an authority's file that has become something else.
func TestFilesThatDoNotFitAreComplainedOf(t *testing.T) {
	t.Parallel()
	o, log := aLog(t)
	file := filepath.Join(t.TempDir(), "ca.pem")
	good := string(testca.New(t).PEM())
	write(t, file, good)
	r, err := NewReread(ClientFiles{CA: file, Names: [3]string{"--ca"}, Log: o.Logger}, &http.Transport{})
	if err != nil {
		t.Fatal(err)
	}
	first := r.current()
	write(t, file, "no certificate")
	for range 3 {
		if r.current() != first {
			t.Fatal("it goes by a file that does not fit")
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "contains no PEM certificate") {
		t.Fatalf("the log, of %d lines:\n%s", n, log)
	}
	write(t, file, good)
	if r.current(); !strings.Contains(log.String(), "can be used again") {
		t.Fatalf("the log:\n%s", log)
	}
}
