package main

import (
	"fmt"
	"io"
	"strings"
)

// races are the reports of the race detector that have begun, by package. They are printed as soon as they are whole,
// and whatever became of the test that they stand in: a report stands in the output of whichever test has said something
// last, also in that of one that passes, and the one that fails for it only says that there was one.
type races map[string]*strings.Builder

const (
	raceMark = "WARNING: DATA RACE"
	raceEnds = "=================="
)

// add takes a line of a package's output.
func (r races) add(out io.Writer, e event) {
	line := strings.TrimSpace(e.Output)
	report := r[e.Package]
	switch {
	case line == raceMark:
		report = &strings.Builder{}
		r[e.Package] = report
		fmt.Fprintf(report, "=== a data race, in the output of %s %s\n", e.Package, e.Test)
	case report == nil:
		return
	}
	report.WriteString(e.Output)
	if line == raceEnds {
		fmt.Fprint(out, report.String())
		delete(r, e.Package)
	}
}

// rest prints the reports that something has cut off.
func (r races) rest(out io.Writer) {
	for _, report := range r {
		fmt.Fprint(out, report.String())
	}
}
