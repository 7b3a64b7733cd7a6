package layers

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxLines    = 400 // of a file that a person wrote, tests excepted
	maxCmdLines = 100 // of a command's file: flags and wiring only
	maxColumns  = 160
	maxMethods  = 30 // of a type; those of what it embeds are not its own
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

// wide counts the lines of code beyond maxColumns, a tab being four.
var wide = measure{name: "wide", slack: 2, mend: "a line has at most 160 columns: break it, or give a part of it a name"}

func TestLinesAreNarrow(t *testing.T) {
	count := map[string]int{}
	eachFile(t, func(path string, content []byte) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || generated.Match(content) {
			return
		}
		for line := range bytes.Lines(content) {
			if utf8.RuneCount(bytes.TrimRight(line, "\n"))+3*bytes.Count(line, []byte("\t")) > maxColumns {
				count[filepath.Dir(path)]++
			}
		}
	})
	wide.hold(t, count)
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
		if !unfinished.Match(content) {
			return
		}
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
		if !elsewhere.Match(content) {
			return
		}
		for i, line := range bytes.Split(content, []byte("\n")) {
			if elsewhere.Match(line) {
				t.Errorf("%s:%d: %s", path, i+1, line)
			}
		}
	})
}
