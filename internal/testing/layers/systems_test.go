package layers

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What package syscall has on Linux, macOS and Windows alike, and we use. Other names need a file for the
// systems that have them (//go:build), or the programs build on Linux only.
var onEverySystem = strings.Fields("EADDRINUSE ECONNREFUSED EISDIR Exec SIGHUP SIGINT SIGKILL SIGTERM")

func TestProgramsBuildOnEverySystem(t *testing.T) {
	name := regexp.MustCompile(`\bsyscall\.([A-Z]\w*)`)
	constraint := regexp.MustCompile(`(?m)^//go:build `)
	ofOne := regexp.MustCompile(`_(linux|darwin|windows)\.go$`)
	found := 0
	eachFile(t, func(path string, content []byte) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "bench/") || constraint.Match(content) || ofOne.MatchString(path) {
			return
		}
		for _, m := range name.FindAllSubmatch(content, -1) {
			if found++; !slices.Contains(onEverySystem, string(m[1])) {
				t.Errorf("%s: syscall.%s is not on every system: move it into a file with //go:build", path, m[1])
			}
		}
	})
	if found < 5 {
		t.Errorf("%d names of syscall found", found)
	}
}
