package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../"

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Whoever changes a number by hand, on one of the two pages, fails here: make measured writes both.
func TestReadmeQuotesThePage(t *testing.T) {
	want, err := quote(split(text(t, pagePath)))
	if err != nil {
		t.Fatal(err)
	}
	if got := block.FindString(text(t, readmePath)); got != "<!-- measured -->\n"+want+"<!-- end of measured -->" {
		t.Errorf("README has\n%s\nand %s says\n%s\nrun make measured", got, pagePath, want)
	}
}

// The page's commands are of benchmarks that exist, with options that they have.
func TestCommandsOfThePageExist(t *testing.T) {
	all := command.FindAllStringSubmatch(text(t, pagePath), -1)
	if len(all) < 5 {
		t.Fatalf("%d commands found", len(all))
	}
	for _, m := range all {
		words := strings.Fields(m[1])
		if words[0] == "scripts/bench.sh" {
			name := words[1]
			if !strings.Contains(text(t, words[0]), "\n"+name+") ") && !strings.Contains(text(t, words[0]), "\n"+name+")\n") {
				t.Errorf("%s: there is no benchmark %s", m[1], name)
			}
			sources := sourcesIn(t, "bench/"+name+"/*.go", "scripts/bench-"+name+".sh")
			for _, option := range regexp.MustCompile(`--[a-z-]+`).FindAllString(m[1], -1) {
				if !strings.Contains(sources, `"`+option[2:]+`"`) && !strings.Contains(sources, option) {
					t.Errorf("%s: there is no option %s", m[1], option)
				}
			}
			continue
		}
		names := regexp.MustCompile(`Benchmark\(([A-Za-z|]+)\)`).FindStringSubmatch(m[1])
		if names == nil || words[0] != "go" {
			t.Errorf("%s is no command of a benchmark", m[1])
			continue
		}
		everywhere := ""
		for _, dir := range regexp.MustCompile(`\./\S+`).FindAllString(m[1], -1) {
			sources := sourcesIn(t, dir+"/*_test.go")
			if !regexp.MustCompile(`func Benchmark(` + names[1] + `)\(`).MatchString(sources) {
				t.Errorf("%s: %s has none of these benchmarks", m[1], dir)
			}
			everywhere += sources
		}
		for name := range strings.SplitSeq(names[1], "|") {
			if !strings.Contains(everywhere, "func Benchmark"+name+"(") {
				t.Errorf("%s: there is no benchmark %s", m[1], name)
			}
		}
	}
}

func sourcesIn(t *testing.T, patterns ...string) (sources string) {
	t.Helper()
	for _, pattern := range patterns {
		files, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, file := range files {
			sources += text(t, strings.TrimPrefix(file, filepath.Clean(root)))
		}
	}
	return sources
}

const section = `Micro

Measured never.

    go test -bench A

| | ns/op | B/op |
|---|--:|--:|
| Gone | 1 | 2 |

    scripts/bench.sh b

Prose stays.
`

// A table keeps its columns and gets new rows; where there is none, all units have a column.
func TestResultsReplaceTheTablesBelowTheirCommands(t *testing.T) {
	got, err := fill(section, func(command string) (string, error) {
		return map[string]string{
			"go test -bench A": "goos: linux\nBenchmarkA/keys=10-2 \t 100 \t 7.25 ns/op \t 32.1 MB/s\t 5 B/op\nBenchmarkA/keys=10-2 100 1234 ns/op 5 B/op\n" +
				"BenchmarkA/keys=10-2 100 8 ns/op 5 B/op\nPASS\n",
			"scripts/bench.sh b": "run 1  fast\nBenchmarkB 3 0.125 s 12345.6 events/s\nBenchmarkC 3 99.96 s\n",
		}[command], nil
	})
	want := `Micro

Measured never.

    go test -bench A

| | ns/op | B/op |
|---|--:|--:|
| A/keys=10 | 8 | 5 |

    scripts/bench.sh b

| | s | events/s |
|---|--:|--:|
| B | 0.125 | 12346 |
| C | 100 |  |

Prose stays.
`
	if err != nil || got != want {
		t.Errorf("%v: got\n%s\nwant\n%s", err, got, want)
	}
	again, err := fill(got, func(command string) (string, error) {
		return map[bool]string{true: "BenchmarkA/keys=10 1 8 ns/op 5 B/op", false: "BenchmarkB 3 0.125 s 12346 events/s\nBenchmarkC 3 100 s\n"}[command == "go test -bench A"], nil
	})
	if err != nil || again != want {
		t.Errorf("%v: the same results change the page:\n%s", err, again)
	}
}

func TestFailuresAreErrors(t *testing.T) {
	away := errors.New("wrk is needed")
	if _, err := fill(section, func(string) (string, error) { return "BenchmarkA 1 2 s\n", away }); !errors.Is(err, away) {
		t.Errorf("a command that failed: %v", err)
	}
	if _, err := fill(section, func(string) (string, error) { return "no tests to run\n", nil }); err == nil {
		t.Error("a command without results is no error")
	}
}

func TestChosen(t *testing.T) {
	for _, c := range []struct {
		only string
		want bool
	}{{"", true}, {"micro", true}, {"latency,micro", true}, {"latency", false}} {
		if got := chosen(section, c.only); got != c.want {
			t.Errorf("ONLY=%q: %t", c.only, got)
		}
	}
}

func TestLookUp(t *testing.T) {
	sections := split("# Head\n\n## " + section + "\n## Micro too\n\n| | ns/op |\n|---|--:|\n| Gone | 3 |\n")
	for _, c := range []struct{ title, row, unit, want string }{
		{"Micro", "Gone", "B/op", "2"},
		{"Micro too", "Gone", "ns/op", "3"},
		{"Micro too", "Gone", "B/op", ""},
		{"Micro", "Go", "B/op", ""},
		{"Latency", "Gone", "B/op", ""},
	} {
		if got := lookUp(sections, c.title, c.row, c.unit); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if join(sections) != "# Head\n\n## "+section+"\n## Micro too\n\n| | ns/op |\n|---|--:|\n| Gone | 3 |\n" {
		t.Error("a page that is split and joined is another one")
	}
}
