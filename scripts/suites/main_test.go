package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	all := []suite{
		{"long", 100, "", []string{"a/"}}, {"other", 60, "", []string{"a/x", "b/"}}, {"short", 10, "short", []string{"c.md"}}, {"hours", 7200, "", []string{"d/"}},
	}
	for about, c := range map[string]struct {
		files []string
		most  int
		day   int
		want  string
		says  string
	}{
		"nothing touched": {[]string{"e/e.go"}, 150, 1, "other", "other: drawn by the day\n"},
		"one touched":     {[]string{"a/a.go", "e/e.go"}, 150, 0, "long,other", "long: touched by a/a.go\nother: drawn by the day\n"},
		"the one that most do": {[]string{"a/x.go", "b/b.go", "a/y.go", "b/c.go"}, 150, 1, "other,short",
			"other: touched by a/x.go and 2 more\nleft to make nightly: long is touched by a/x.go and 1 more, and takes longer than what is left of the run\n" +
				"short: drawn by the day\n"},
		"no end of time": {[]string{"a/x.go", "c.md", "d/d.go"}, 0, 5, "hours,long,other,short",
			"long: touched by a/x.go\nother: touched by a/x.go\nshort: touched by c.md\nhours: touched by d/d.go\n"},
		"hours are not drawn":  {nil, 150, 0, "long", "long: drawn by the day\n"},
		"another one each day": {nil, 150, 2, "short", "short: drawn by the day\n"},
		"the draw may be later": {[]string{"d/d.go"}, 150, 3, "long",
			"left to make nightly: hours is touched by d/d.go, and takes longer than what is left of the run\nlong: drawn by the day\n"},
	} {
		var said strings.Builder
		if got := strings.Join(choose(all, c.files, c.most, c.day, &said), ","); got != c.want || said.String() != c.says {
			t.Errorf("%s: %s, want %s; it says\n%swant\n%s", about, got, c.want, said.String(), c.says)
		}
	}
}

// A suite of tests has tests, and each test's suite is in the table.
func TestSuitesAreThoseOfTests(t *testing.T) {
	call := regexp.MustCompile(`servers\.Nightly\([a-z]+, "([a-z]+)"\)`)
	of := map[string]string{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range call.FindAllStringSubmatch(string(text), -1) {
			of[m[1]] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range suites {
		if (of[s.name] == "") != (s.target != "") {
			t.Errorf("%s: its tests are in %q, its make target is %q", s.name, of[s.name], s.target)
		}
		delete(of, s.name)
	}
	for name, path := range of {
		t.Errorf("%s: the table has no suite %s", path, name)
	}
}

// A path that is renamed touches its suites still.
func TestPathsOfSuitesExist(t *testing.T) {
	for _, s := range suites {
		for _, prefix := range s.touches {
			if found, err := filepath.Glob("../../" + prefix + "*"); err != nil || len(found) == 0 {
				t.Errorf("%s: nothing begins with %s", s.name, prefix)
			}
		}
	}
}

func TestTargets(t *testing.T) {
	if got, want := targets([]string{"site", "kills", "models"}), []string{"models", "site"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range suites {
		if target, _, _ := strings.Cut(s.target, " "); target != "" && !strings.Contains(string(makefile), "\n"+target+":") {
			t.Errorf("%s: make has no %s", s.name, target)
		}
	}
}

func TestChanged(t *testing.T) {
	dir := t.TempDir()
	if _, err := changed(dir); err == nil {
		t.Error("there is no repository, and what changed is told")
	}
	run := func(args ...string) {
		t.Helper()
		if _, err := git(dir, append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	commit := func(file string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		run("add", "-A")
		run("commit", "-q", "-m", file)
	}
	is := func(about string, want ...string) {
		t.Helper()
		if got, err := changed(dir); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", about, got, err, want)
		}
	}
	run("init", "-q", "-b", "main")
	commit("first.go")
	if _, err := changed(dir); err == nil {
		t.Error("there is one commit, and what it changed is told")
	}
	commit("second.go")
	is("on main", "second.go")
	run("switch", "-q", "-c", "change")
	commit("third.go")
	commit("fourth.go")
	if err := os.WriteFile(filepath.Join(dir, "new.go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	is("on a branch", "fourth.go", "third.go", "new.go")
}
