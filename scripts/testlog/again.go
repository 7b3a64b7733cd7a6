package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// mostAgain is how many tests may fail in a run whose failure is worth another look.
const mostAgain = 1

// again is the test that failed beside others, and may be run alone. It is none where something
// failed that is not one test's: a package that does not compile, a process that ended, a panic, a data race, a goroutine that
// leaked, or two tests.
type again struct {
	failed []string        // packages and tests
	of     map[string]bool // packages that have one of them
	whole  map[string]bool // packages that failed
	open   map[string]int  // tests of a package that have begun and not ended
	never  bool
}

func (a *again) add(e event) {
	switch line := strings.TrimSpace(e.Output); {
	case e.Action == "build-output" || e.Action == "build-fail":
		a.never = true
	case e.Action == "output":
		a.never = a.never || line == raceMark || strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
	case e.Action == "run":
		a.open[e.Package]++
	case e.Test != "" && (e.Action == "pass" || e.Action == "skip"):
		a.open[e.Package]--
	case e.Action != "fail":
	case e.Test == "":
		a.whole[e.Package] = true
		a.never = a.never || a.open[e.Package] > 0 // the process ended among its tests: others never ran
	default:
		a.open[e.Package]--
		if strings.Contains(e.Test, "/") {
			return
		}
		a.failed, a.of[e.Package] = append(a.failed, e.Package+" "+e.Test), true
	}
}

// write writes it to a file; nothing when another look is not worth it.
func (a *again) write(file string) error {
	text := ""
	for pkg := range a.whole {
		a.never = a.never || !a.of[pkg]
	}
	if !a.never && len(a.failed) <= mostAgain {
		slices.Sort(a.failed)
		for _, name := range a.failed {
			text += fmt.Sprintln(name)
		}
	}
	return os.WriteFile(file, []byte(text), 0o644)
}
