package layers

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

const ceilingsFile = "testdata/ceilings.txt"

// A measure is a number by which packages, or types, are judged. What is worse than the bar stands in ceilings.txt
// with a ceiling of its own, which only falls: the test fails when the number passes it, and also when it is so far
// below that the ceiling no longer holds anything.
type measure struct {
	name  string
	bar   int
	slack int // how far a number may be below its ceiling
	least bool
	mend  string // what to do about a number that is too high
}

// hold compares what is measured, by package or type, with the bar and the ceilings. With least, numbers have to be
// as high as the bar, and the file has floors, which only rise.
func (m measure) hold(t *testing.T, measured map[string]int) {
	t.Helper()
	if len(measured) == 0 {
		t.Fatalf("%s: nothing was measured", m.name)
	}
	all := readCeilings(t)
	if testrun.Rewriting() {
		all[m.name] = m.tighten(measured, all[m.name])
		writeCeilings(t, all)
	}
	for _, fault := range m.compare(measured, all[m.name]) {
		t.Error(fault)
	}
}

// compare returns what is wrong with the numbers, or with their ceilings.
func (m measure) compare(measured, ceilings map[string]int) (faults []string) {
	for _, name := range slices.Sorted(maps.Keys(measured)) {
		now := measured[name]
		allowed, excepted := ceilings[name]
		if !excepted {
			allowed = m.bar
		}
		switch {
		case m.worse(now, allowed):
			faults = append(faults, fmt.Sprintf("%s %s: %d, and %d is allowed: %s. What only moved takes its number along, by hand, in %s", m.name, name, now, allowed, m.mend, ceilingsFile))
		case excepted && (!m.worse(now, m.bar) || max(now-allowed, allowed-now) > m.slack):
			faults = append(faults, fmt.Sprintf("%s %s: %d, better than the %d of %s: go test ./internal/testing/layers -rewrite keeps it so", m.name, name, now, allowed, ceilingsFile))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ceilings)) {
		if _, ok := measured[name]; !ok {
			faults = append(faults, fmt.Sprintf("%s %s: it is gone: go test ./internal/testing/layers -rewrite takes it out of %s", m.name, name, ceilingsFile))
		}
	}
	return faults
}

func (m measure) worse(a, b int) bool { return m.least && a < b || !m.least && a > b }

// tighten returns the ceilings without those that are not needed any more, and each as low as what is measured.
func (m measure) tighten(measured, ceilings map[string]int) map[string]int {
	out := map[string]int{}
	for name, allowed := range ceilings {
		if now, ok := measured[name]; ok && m.worse(now, m.bar) {
			if out[name] = now; m.worse(now, allowed) {
				out[name] = allowed
			}
		}
	}
	return out
}

// ceilings are numbers by measure, and by package or type.
type ceilings map[string]map[string]int

func readCeilings(t *testing.T) ceilings {
	t.Helper()
	text, err := os.ReadFile(ceilingsFile)
	if err != nil {
		t.Fatal(err)
	}
	all := ceilings{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		n, err := strconv.Atoi(fields[len(fields)-1])
		if err != nil || len(fields) != 3 {
			t.Fatalf("%s: %q: want a measure, a name and a number", ceilingsFile, line)
		}
		if all[fields[0]] == nil {
			all[fields[0]] = map[string]int{}
		}
		all[fields[0]][fields[1]] = n
	}
	return all
}

func writeCeilings(t *testing.T, all ceilings) {
	t.Helper()
	text, err := os.ReadFile(ceilingsFile)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			out.WriteString(line)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out.WriteString("\n")
		for _, of := range slices.Sorted(maps.Keys(all[name])) {
			fmt.Fprintf(&out, "%s %s %d\n", name, of, all[name][of])
		}
	}
	if err := os.WriteFile(ceilingsFile, []byte(out.String()), 0o666); err != nil {
		t.Fatal(err)
	}
}

func TestCeilingsOnlyFall(t *testing.T) {
	high, low := measure{name: "lines", bar: 10, slack: 2, mend: "shorten it"}, measure{name: "share", bar: 14, least: true}
	for _, c := range []struct {
		about    string
		m        measure
		now      int
		ceiling  int // 0: none
		fault    string
		tightens int
	}{
		{"at the bar", high, 10, 0, "", 0},
		{"above the bar", high, 11, 0, "lines p: 11, and 10 is allowed: shorten it", 0},
		{"at its ceiling", high, 20, 20, "", 20},
		{"above its ceiling", high, 21, 20, "lines p: 21, and 20 is allowed", 20},
		{"a little below", high, 18, 20, "", 18},
		{"well below", high, 17, 20, "better than the 20", 17},
		{"at the bar, with a ceiling", high, 10, 11, "better than the 11", 0},
		{"below a floor", low, 8, 9, "share p: 8, and 9 is allowed", 9},
		{"above a floor", low, 10, 9, "better than the 9", 10},
		{"below the least", low, 13, 0, "13, and 14 is allowed", 0},
	} {
		t.Run(c.about, func(t *testing.T) {
			ceilings := map[string]int{}
			if c.ceiling != 0 {
				ceilings["p"] = c.ceiling
			}
			got := strings.Join(c.m.compare(map[string]int{"p": c.now}, ceilings), "\n")
			if !strings.Contains(got, c.fault) || c.fault == "" && got != "" {
				t.Errorf("%q, want %q", got, c.fault)
			}
			if got := c.m.tighten(map[string]int{"p": c.now}, ceilings)["p"]; got != c.tightens {
				t.Errorf("it is tightened to %d, want %d", got, c.tightens)
			}
		})
	}
	if got := high.compare(map[string]int{"p": 1}, map[string]int{"gone": 20}); len(got) != 1 || !strings.Contains(got[0], "gone: it is gone") {
		t.Errorf("what is gone: %q", got)
	}
}
