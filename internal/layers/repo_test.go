package layers

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

const (
	maxLines    = 400 // of a file that a person wrote, tests excepted
	maxCmdLines = 100 // of a command's file: flags and wiring only
	maxMethods  = 30  // of a type; those of what it embeds are not its own
)

var (
	method    = regexp.MustCompile(`(?m)^func \(\w+ \*?(\w+)`)
	generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

	// These must not be found in this file either, hence the brackets.
	unfinished = regexp.MustCompile(`\b(TO[D]O|FIX[M]E)\b`)
	elsewhere  = regexp.MustCompile(`\.\./share[d]\b|/wor[k]/(share[d]|mai[n])\b|/tmp/setu[p]\b`)
)

func TestFilesAreShort(t *testing.T) {
	eachFile(t, func(path string, content []byte) {
		limit := maxLines
		switch ext := filepath.Ext(path); {
		case strings.HasSuffix(path, "_test.go") || generated.Match(content):
			return
		case ext == ".go" && strings.HasPrefix(path, "cmd/"):
			limit = maxCmdLines
		case ext != ".go" && ext != ".sh" && ext != ".lua" && ext != ".py" && ext != ".java":
			return
		}
		if n := bytes.Count(content, []byte("\n")); n > limit {
			t.Errorf("%s has %d lines; %d are allowed", path, n, limit)
		}
	})
}

func TestTypesAreSmall(t *testing.T) {
	count := map[string]int{}
	eachFile(t, func(path string, content []byte) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || generated.Match(content) {
			return
		}
		for _, m := range method.FindAllSubmatch(content, -1) {
			count[filepath.Dir(path)+"."+string(m[1])]++
		}
	})
	for name, n := range count {
		if n > maxMethods {
			t.Errorf("%s has %d methods; %d are allowed: embed types of fewer, or hold them", name, n, maxMethods)
		}
	}
	if count["pipeline/enforce.Table"] == 0 {
		t.Error("no methods of pipeline/enforce.Table are found")
	}
}

func TestNothingIsLeftToDo(t *testing.T) {
	eachFile(t, func(path string, content []byte) {
		for i, line := range bytes.Split(content, []byte("\n")) {
			if unfinished.Match(line) {
				t.Errorf("%s:%d: %s", path, i+1, line)
			}
		}
	})
}

// The repository stands on its own: no file names one that is not in it.
func TestNothingPointsElsewhere(t *testing.T) {
	eachFile(t, func(path string, content []byte) {
		for i, line := range bytes.Split(content, []byte("\n")) {
			if elsewhere.Match(line) {
				t.Errorf("%s:%d: %s", path, i+1, line)
			}
		}
	})
}

// notOurs are folders of what builds and tests leave.
var notOurs = []string{".git", ".run", ".site", "bin", "node_modules", "target"}

// eachFile calls do for each text file of the repository, test data and what builds leave
// excepted.
func eachFile(t *testing.T, do func(path string, content []byte)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || slices.Contains(notOurs, d.Name())) {
			return filepath.SkipDir
		}
		if !d.Type().IsRegular() || d.Name() == ".git" { // a file in a second work tree
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.ContainsRune(content, 0) {
			path, _ = filepath.Rel(root, path)
			do(path, content)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
