package access

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A file is followed, also through a link in its path; while it is wrong or away, what it was goes
// on.
func TestTheFileIsFollowed(t *testing.T) {
	mount := t.TempDir()
	path := filepath.Join(mount, "tokens.yaml")
	version := 0
	put := func(text string) {
		t.Helper()
		version++
		folder := filepath.Join(mount, fmt.Sprintf("..v%d", version))
		next := filepath.Join(mount, "..next")
		for _, err := range []error{
			os.Mkdir(folder, 0o755), os.WriteFile(filepath.Join(folder, "tokens.yaml"), []byte(text), 0o600),
			os.Symlink(folder, next), os.Rename(next, filepath.Join(mount, "..data")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	one := func(token string) string {
		return fmt.Sprintf(`[{"name": "x", "role": "admin", "sha256": %q}]`, hashOf(token))
	}
	put(one("first"))
	if err := os.Symlink(filepath.Join("..data", "tokens.yaml"), path); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	g := guard(t, Config{Tokens: path, Addr: anywhere, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	is := func(about string, first, second int) {
		t.Helper()
		a, _ := ask(g, Viewer, bearer("first"))
		b, _ := ask(g, Viewer, bearer("second"))
		if a != first || b != second {
			t.Errorf("%s: the tokens get %d and %d, want %d and %d", about, a, b, first, second)
		}
	}
	is("at the start", 200, 401)
	put(one("second"))
	is("replaced", 401, 200)
	put("- {name: x")
	is("wrong", 401, 200)
	if err := os.Remove(filepath.Join(mount, "..data")); err != nil {
		t.Fatal(err)
	}
	is("away", 401, 200)
	is("still away", 401, 200)
	put(one("first"))
	is("there again", 200, 401)
	put("[]")
	is("nobody may", 401, 401)
	if n := strings.Count(log.String(), "level=ERROR"); n != 2 {
		t.Errorf("a wrong file and one that is away are told %d times:\n%s", n, &log)
	}
}

func TestMistakesInTheFile(t *testing.T) {
	good := hashOf("x")
	for text, want := range map[string]string{
		"":          "empty",
		"name: x":   "cannot",
		"s3cr3t-t0": "cannot",
		"[]\n---\n[{name: x, role: admin, sha256: s3cr3t-t0}]":                                          "more than one document",
		`[{name: x, role: admin, token: s3cr3t-t0}]`:                                                    "token",
		`[{name: x, role: root, sha256: ` + good + `}]`:                                                 "viewer, operator, admin or service",
		`[{name: x, role: none, sha256: ` + good + `}]`:                                                 "viewer, operator, admin or service",
		`[{role: admin, sha256: ` + good + `}]`:                                                         "needs a name",
		`[{name: x, role: admin}]`:                                                                      "a token's sha256 or a certificate's name",
		`[{name: x, role: admin, sha256: s3cr3t-t0}]`:                                                   "64 hexadecimal digits",
		`[{name: x, role: admin, sha256: ` + hashOf("") + `}]`:                                          "empty token",
		`[{name: x, role: admin, sha256: ` + good + `}, {name: y, role: viewer, sha256: ` + good + `}]`: "entry 2 (y): another entry has the same sha256",
		`[{name: x, role: admin, certificate: c}, {name: y, role: viewer, certificate: c}]`:             "another entry has the same certificate",
		`[{name: x, role: root, sha256: ` + good + `}, {name: y, role: viewer, sha256: "00"}]`:          "entry 2",
	} {
		_, err := New(Config{Tokens: tokens(t, text), Addr: loopback})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--tokens") {
			t.Errorf("%s: %v, want %q", text, err, want)
		} else if strings.Contains(err.Error(), "s3cr") {
			t.Errorf("%s: the error tells the token: %v", text, err)
		}
	}
	if _, err := New(Config{Tokens: filepath.Join(t.TempDir(), "nosuch")}); err == nil {
		t.Error("a file that is not there")
	}
}

// Whatever a file says, an entry that passes has a name, a role and a way to prove it.
func FuzzFile(f *testing.F) {
	f.Add(`[{name: x, role: admin, sha256: ` + hashOf("x") + `}]`)
	f.Add(`[{name: x, role: viewer, certificate: "y"}]`)
	f.Add("&a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parse([]byte(text))
		if err != nil {
			return
		}
		for _, c := range list {
			if c.Name == "" || c.Role < Viewer || c.Role > Admin || c.hash == nil && c.certificate == "" || c.hash != nil && len(c.hash) != sha256.Size {
				t.Errorf("%q gives %+v", text, c)
			}
		}
		if _, ok := list.byHash(sha256.Sum256(nil)); ok {
			t.Errorf("%q lets an empty token in", text)
		}
	})
}

// Two changes of one moment may leave one time, and files of one token have one size.
func TestTheFileIsFollowedWhenOnlyItsTextChanges(t *testing.T) {
	one := func(token string) string {
		return fmt.Sprintf("- {name: x, role: admin, sha256: %s}", hashOf(token))
	}
	path := tokens(t, one("first"))
	written := time.Now()
	put := func(text string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, written, written)); err != nil {
			t.Fatal(err)
		}
	}
	put(one("first"))
	var log bytes.Buffer
	g := guard(t, Config{Tokens: path, Addr: anywhere, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if got, _ := ask(g, Viewer, bearer("first")); got != 200 {
		t.Errorf("the first token gets %d", got)
	}
	put(one("other"))
	if got, _ := ask(g, Viewer, bearer("first")); got != 401 {
		t.Errorf("a token that was taken out gets %d", got)
	}
	if got, _ := ask(g, Viewer, bearer("other")); got != 200 {
		t.Errorf("the one in its place gets %d", got)
	}
	if n := strings.Count(log.String(), "was reloaded"); n != 1 {
		t.Errorf("one change is told %d times:\n%s", n, &log)
	}
}
