package dev_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// asTool is set for a process of the test's program that shall be the tool.
const asTool = "TALLYGATE_TEST_AS_TOOL"

// A newcomer's first ten minutes are as docs/tutorial.md prints them: its files are written, its
// commands run in bash, and what they print is compared but for times.
func TestTutorial(t *testing.T) { follow(t, "../../../docs/tutorial.md", 10) }

// From a budget in words to one that is kept: the first part of docs/budgets.md.
func TestBudgetsInTenMinutes(t *testing.T) { follow(t, "../../../docs/budgets.md", 6) }

// follow does what a page says. It compares at least so many outputs.
func follow(t *testing.T, path string, outputs int) {
	t.Helper()
	t.Parallel()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, dir: t.TempDir()}
	r.tool()
	out := fenced.ReplaceAllFunc(page, func(block []byte) []byte {
		m := fenced.FindSubmatch(block)
		switch string(m[1]) {
		case "yaml":
			r.write(string(m[2]))
		case "console":
			return []byte("```console\n" + r.types(string(m[2])) + "```\n")
		}
		return block
	})
	if r.dev == nil || r.compared < outputs && !testrun.Rewriting() {
		t.Errorf("%d outputs were compared: the page is read wrongly", r.compared)
	}
	r.dev.ends()
	if testrun.Rewriting() && !t.Failed() {
		if err := os.WriteFile(path, out, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

var (
	fenced = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```\n")
	named  = regexp.MustCompile(`^# (\S+\.yaml)\n`)
)

// reader does what a page says, in a folder of its own, beside a `tallygate dev` on free ports.
type reader struct {
	t        *testing.T
	dir      string
	dev      *running
	env      []string
	server   string // the decision server's address
	compared int
}

// tool makes a command `tallygate` of this program.
func (r *reader) tool() {
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	bin := r.t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s' \"$@\"\n", asTool, self)
	if err := os.WriteFile(filepath.Join(bin, "tallygate"), []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		r.t.Fatal(err)
	}
	r.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
}

// write writes a block whose first line is a comment with its file's name. A file is replaced at
// once, as editors do.
func (r *reader) write(text string) {
	r.t.Helper()
	m := named.FindStringSubmatch(text)
	if m == nil {
		return
	}
	path := filepath.Join(r.dir, m[1])
	if err := os.WriteFile(path+"~", []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		r.t.Fatal(err)
	}
	if r.dev != nil && m[1] == "rules.yaml" {
		r.dev.sees(`-- the changed rules count now: version \d+$`)
	}
}

// types runs a block's commands, and returns the block with what they printed.
func (r *reader) types(block string) string {
	r.t.Helper()
	var out strings.Builder
	for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
		command, want, _ := strings.Cut(strings.TrimSuffix(step, "\n"), "\n")
		if args, ok := strings.CutPrefix(command, "tallygate dev "); ok {
			r.start(strings.Fields(args))
			fmt.Fprintf(&out, "$ %s\n", command)
			continue
		}
		got := r.run(command, want)
		fmt.Fprintf(&out, "$ %s\n", command)
		if got != "" {
			out.WriteString(got + "\n")
		}
	}
	return out.String()
}

func (r *reader) start(args []string) {
	for i, arg := range args {
		if strings.HasSuffix(arg, ".yaml") {
			args[i] = filepath.Join(r.dir, arg)
		}
	}
	r.dev = start(r.t, nil, args...)
	r.server = r.dev.sees(`decision server +http://(\S+)/v1/check$`)[1]
	r.env = append(r.env,
		"TALLYGATE_KAFKA="+r.dev.sees(`Kafka +(\S+), topic tallygate\.events$`)[1],
		"TALLYGATE_AGGREGATOR="+r.dev.sees(`aggregator +http://([^/\s]+)`)[1])
}

// run runs a command. One that changes nothing runs until it prints what the page says, since verdicts take
// their time.
func (r *reader) run(command, want string) string {
	r.t.Helper()
	once := strings.Contains(command, "tallygate emit") || strings.Contains(command, "tallygate unblock")
	var got string
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		cmd := exec.CommandContext(r.t.Context(), "bash", "-c", strings.ReplaceAll(command, "localhost:8080", r.server))
		cmd.Dir, cmd.Env = r.dir, r.env
		var text bytes.Buffer
		cmd.Stdout, cmd.Stderr = &text, &text
		_ = cmd.Run() // a test that fails exits 1, and that is shown
		got = strings.TrimSuffix(text.String(), "\n")
		if timeless(got) == timeless(want) {
			r.compared++
			return want
		}
		if once || testrun.Rewriting() && time.Until(end) < within-3*time.Second || time.Now().After(end) {
			break
		}
	}
	if !testrun.Rewriting() {
		r.t.Errorf("$ %s\nprints\n%s\nwhere the page has\n%s", command, got, want)
	}
	return got
}

var variable = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z|\d+(\.\d+)?(ms|µs|s)\b|\(\d+/s\)|\(\d+ a second\)|"(retry_after|reset)":\d+|"permit":.*?"token":"[^"]*"|"seq":\d+| \(in [0-9a-z ]+\)|\d+d ago| {2,}`)

// timeless is a text without what differs from run to run: times, durations, rates, places in the
// order of verdicts, and how far columns are apart.
func timeless(text string) string { return variable.ReplaceAllString(text, "~") }
