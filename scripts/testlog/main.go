// Command testlog reads `go test -json` from its standard input, and prints what a person
// wants to see of it: a line for each package, what failed tests said, which took longest, and
// the sums.
//
// It also sees to it that a skipped test was run elsewhere: with -seen FILE it adds what it
// saw to the file, and `testlog -never FILE` fails for each test that was skipped in every
// run of that file. A test of `make nightly` is named there, and fails nothing.
//
// With -again FILE it writes down the package and the name of the test that failed, unless more than one
// did, or something failed that is not a test's.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

func main() {
	seen := flag.String("seen", "", "add the tests that passed or were skipped to `FILE`")
	alone := flag.String("again", "", "write the test that failed to `FILE`, if it is worth running it once more alone")
	never := flag.String("never", "", "say which tests of `FILE` were skipped in every run")
	flag.Parse()
	var err error
	if *never != "" {
		err = reportNever(*never, os.Stdout)
	} else {
		err = digest(os.Stdin, os.Stdout, *seen, *alone)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testlog:", err)
		os.Exit(1)
	}
}

// event is one line of go test -json.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds
}

// nightly is what servers.Nightly says of a test that it skips.
const nightly = "make nightly runs it"

// digest prints a run's digest to out, adds its tests to the file called seen, and writes the one that may
// run again to the one called alone.
func digest(in io.Reader, out io.Writer, seen, alone string) error {
	var tests strings.Builder
	said := map[string][]string{} // by package and test, until it is known how the test ended
	count := map[string]int{}
	var bad []string // tests that failed, or had not ended
	reports, slow, repeat := races{}, slowest{}, again{of: map[string]bool{}, whole: map[string]bool{}, open: map[string]int{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintf(out, "%s\n", lines.Text()) // not a test's: what make or go say themselves
			continue
		}
		name := e.Package + " " + e.Test
		repeat.add(e)
		if e.Action == "output" {
			reports.add(out, e)
		}
		switch {
		case e.Action == "build-output", e.Action == "output" && e.Test == "" && e.Output != "PASS\n":
			fmt.Fprint(out, e.Output)
		case e.Action == "output":
			said[name] = append(said[name], e.Output)
		case e.Test == "":
		case e.Action == "fail", e.Action == "pass", e.Action == "skip":
			if e.Action == "fail" {
				fmt.Fprint(out, strings.Join(said[name], ""))
				bad = append(bad, "failed: "+name)
			} else if e.Action == "skip" && strings.Contains(strings.Join(said[name], ""), nightly) {
				e.Action = "nightly"
			}
			count[e.Action]++
			slow.add(e)
			fmt.Fprintf(&tests, "%s %s\n", e.Action, name)
			delete(said, name)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the test log: %w", err)
	}
	reports.rest(out)
	for _, name := range slices.Sorted(maps.Keys(said)) { // a panic or a timeout ended these
		if !strings.HasSuffix(name, " ") {
			fmt.Fprint(out, strings.Join(said[name], ""))
			bad = append(bad, "did not end: "+name)
		}
	}
	slow.print(out)
	for _, line := range bad { // at the end again, where who reads a long log looks first
		fmt.Fprintln(out, line)
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", count["pass"], count["fail"], count["skip"]+count["nightly"])
	if alone != "" {
		if err := repeat.write(alone); err != nil {
			return err
		}
	}
	if seen == "" {
		return nil
	}
	return appendTo(seen, tests.String())
}

func appendTo(file, text string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// reportNever fails when the file has tests that were skipped and never ran.
func reportNever(file string, out io.Writer) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	ran, skipped, later := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(content)) {
		action, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch action {
		case "skip":
			skipped[name] = true
		case "nightly":
			later[name] = true
		default:
			ran[name] = true
		}
	}
	if len(ran) == 0 {
		return fmt.Errorf("%s has no test that ran", file)
	}
	for _, name := range slices.Sorted(maps.Keys(later)) {
		if !ran[name] {
			fmt.Fprintf(out, "left to make nightly: %s\n", name)
		}
	}
	n := 0
	for _, name := range slices.Sorted(maps.Keys(skipped)) {
		if !ran[name] && !later[name] {
			n++
			fmt.Fprintf(out, "never run: %s\n", name)
		}
	}
	if n > 0 {
		return fmt.Errorf("%d tests were skipped in every run", n)
	}
	return nil
}
