package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// skips holds the tests of a file of -seen that ran, that were skipped, and that were left to suites of make nightly.
type skips struct {
	ran, skipped map[string]bool
	later        map[string]string // to which suite
}

func readSkips(file string) (*skips, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := &skips{map[string]bool{}, map[string]bool{}, map[string]string{}}
	for line := range strings.Lines(string(content)) {
		action, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if suite, ok := strings.CutPrefix(action, "nightly:"); ok {
			s.later[name] = suite
		} else if action == "skip" {
			s.skipped[name] = true
		} else {
			s.ran[name] = true
		}
	}
	if len(s.ran) == 0 {
		return nil, fmt.Errorf("%s has no test that ran", file)
	}
	return s, nil
}

// reportNever fails when the file has tests that were skipped and never ran. Those of other suites than the chosen ones
// are left to make nightly.
func reportNever(file string, chosen []string, out io.Writer) error {
	s, err := readSkips(file)
	if err != nil {
		return err
	}
	left := map[string]int{}
	for name, suite := range s.later {
		if s.ran[name] {
			continue
		}
		if slices.Contains(chosen, suite) {
			s.skipped[name] = true
		} else {
			left[suite]++
		}
	}
	for _, suite := range slices.Sorted(maps.Keys(left)) {
		fmt.Fprintf(out, "left to make nightly: %s, %d tests\n", suite, left[suite])
	}
	n := 0
	for _, name := range slices.Sorted(maps.Keys(s.skipped)) {
		if suite := s.later[name]; !s.ran[name] && (suite == "" || slices.Contains(chosen, suite)) {
			n++
			fmt.Fprintf(out, "never run: %s\n", name)
		}
	}
	if n > 0 {
		return fmt.Errorf("%d tests were skipped in every run", n)
	}
	return nil
}

// printSkipped prints a pattern for the tests that were skipped, whole or in part.
func printSkipped(file string, out io.Writer) error {
	s, err := readSkips(file)
	if err != nil {
		return err
	}
	tests := map[string]bool{}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(s.skipped)), slices.Collect(maps.Keys(s.later))) {
		_, test, _ := strings.Cut(name, " ")
		test, _, _ = strings.Cut(test, "/")
		tests[test] = true
	}
	if len(tests) == 0 {
		return fmt.Errorf("%s has no test that was skipped", file)
	}
	fmt.Fprintf(out, `^(%s)\b`+"\n", strings.Join(slices.Sorted(maps.Keys(tests)), "|"))
	return nil
}
