package main

import (
	_ "embed"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	facts   = regexp.MustCompile(`(?m)^\| machine \|.*\n\| versions \|.*\n\| last run \|.*\n`)
	stamps  = regexp.MustCompile(`(?m)^Measured .*$`)
	command = regexp.MustCompile(`(?m)^    (\S.*)\n(?:\n((?:\|.*\n)+))?`) // and the table below it
)

const between = "\n## "

// split returns what is above a page's sections, and then each section from its title on.
func split(page string) []string    { return strings.Split(page, between) }
func join(sections []string) string { return strings.Join(sections, between) }

// fill runs a section's commands, and puts their results into its tables.
func fill(section string, run func(command string) (string, error)) (string, error) {
	var failed error
	section = command.ReplaceAllStringFunc(section, func(old string) string {
		if failed != nil {
			return old
		}
		m := command.FindStringSubmatch(old)
		out, err := run(m[1])
		r := parse(out)
		if err == nil && len(r.rows) == 0 {
			err = fmt.Errorf("%s prints no results", m[1])
		}
		failed = err
		head, _, _ := strings.Cut(m[2], "\n")
		return "    " + m[1] + "\n\n" + r.table(cells(head))
	})
	return section, failed
}

// results are the values that benchmarks printed.
type results struct {
	rows, units []string // in the order of their first appearance
	values      map[[2]string][]float64
}

var processors = regexp.MustCompile(`-\d+$`) // go test appends GOMAXPROCS to names

// parse reads lines of Go's benchmark format: a name, a number of runs, and values with units.
func parse(out string) results {
	r := results{values: map[[2]string][]float64{}}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		row := processors.ReplaceAllString(strings.TrimPrefix(f[0], "Benchmark"), "")
		for i := 2; i+1 < len(f); i += 2 {
			if v, err := strconv.ParseFloat(f[i], 64); err == nil {
				at := [2]string{row, f[i+1]}
				r.values[at] = append(r.values[at], v)
				r.rows, r.units = with(r.rows, row), with(r.units, f[i+1])
			}
		}
	}
	return r
}

func with(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// table has a row of medians for each benchmark. No units are all.
func (r results) table(units []string) string {
	if len(units) == 0 {
		units = r.units
	}
	text := "| | " + strings.Join(units, " | ") + " |\n|---|" + strings.Repeat("--:|", len(units)) + "\n"
	for _, row := range r.rows {
		text += "| " + row + " |"
		for _, unit := range units {
			text += " " + median(r.values[[2]string{row, unit}]) + " |"
		}
		text += "\n"
	}
	return text
}

// median has three digits, or all before the point.
func median(list []float64) string {
	if len(list) == 0 {
		return ""
	}
	list = slices.Sorted(slices.Values(list))
	v := (list[(len(list)-1)/2] + list[len(list)/2]) / 2
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// cells are those of a table's line, behind the first.
func cells(line string) []string {
	return strings.Split(strings.TrimSuffix(line, " |"), " | ")[1:]
}

// README's table. What stands in braces is a number of the page: section, row, unit.
//
//go:embed readme.txt
var quoted string

var (
	number = regexp.MustCompile(`\{(.+?): (\S+) (\S+)\}`)
	host   = regexp.MustCompile(`\| machine \| (.* GiB)`)
	block  = regexp.MustCompile(`(?s)(<!-- measured -->\n).*(<!-- end of measured -->)`)
)

// quote is what README says of the page.
func quote(sections []string) (text string, err error) {
	text = number.ReplaceAllStringFunc(quoted, func(name string) string {
		m := number.FindStringSubmatch(name)
		value := lookUp(sections, m[1], m[2], m[3])
		if value == "" {
			err = fmt.Errorf("%s has no %s, which README quotes: measure that section", pagePath, name)
		}
		return value
	})
	if m := host.FindStringSubmatch(sections[0]); m != nil {
		text = strings.Replace(text, "{machine}", m[1], 1)
	}
	return text, err
}

// lookUp returns a number of a section's tables, or nothing.
func lookUp(sections []string, title, row, unit string) (found string) {
	for _, s := range sections {
		if !strings.HasPrefix(s, title+"\n") {
			continue
		}
		column := -1
		for line := range strings.SplitSeq(s, "\n") {
			if strings.HasPrefix(line, "| | ") {
				column = slices.Index(cells(line), unit)
			} else if strings.HasPrefix(line, "| "+row+" | ") && column >= 0 {
				found = cells(line)[column]
			}
		}
	}
	return found
}

func quoteIn(path string, sections []string) error {
	text, err := quote(sections)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, block.ReplaceAll(old, []byte("${1}"+text+"${2}")), 0o600)
}
