// Command testlog reads `go test -json` from its standard input, and prints what a person
// wants to see of it: a line for each package, what failed tests said, which took longest, and
// the sums.
//
// It also sees to it that a skipped test was run elsewhere: with -seen FILE it adds what it
// saw to the file, and `testlog -never FILE` fails for each test that was skipped in every
// run of that file. A test of a suite of `make nightly` is named there, and fails nothing, unless the suite is one
// of -suites. `testlog -skipped FILE` prints a pattern for the tests that were skipped: those that real servers run.
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
	suites := flag.String("suites", "", "these suites of make nightly, separated by commas, should have run")
	skipped := flag.String("skipped", "", "print a pattern for go test -run: the tests of `FILE` that were skipped")
	flag.Parse()
	var err error
	switch {
	case *never != "":
		err = reportNever(*never, strings.Split(*suites, ","), os.Stdout)
	case *skipped != "":
		err = printSkipped(*skipped, os.Stdout)
	default:
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

// nightly is what servers.Nightly says of a test that it skips, ahead of the suite's name.
const nightly = "make nightly runs it: "

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
			}
			count[e.Action]++
			if _, suite, ok := strings.Cut(strings.Join(said[name], ""), nightly); e.Action == "skip" && ok {
				suite, _, _ = strings.Cut(suite, "\n")
				e.Action = "nightly:" + suite
			}
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
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", count["pass"], count["fail"], count["skip"])
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
