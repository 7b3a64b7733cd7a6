// Command measured runs the benchmarks that docs/measured.md names, and writes their results into
// the page, and into README's table.
//
//	make measured
//	make measured ONLY=micro,latency
//
// The page says what to run: an indented line is a command, and the table below it has its results,
// with the columns of its head; where there is no table, with all that the command prints. Kafka and
// Redis are started for the run, in a folder of their own, and stopped at its end.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const pagePath, readmePath = "docs/measured.md", "README.md"

// quick makes short commands of the page's.
var quick = strings.NewReplacer("-count 5", "-count 1", "-benchtime 0.5s", "-benchtime 20x",
	"--runs 3", "--runs 1", "--events 1000000", "--events 100000", "--probes 2000", "--probes 200",
	",5000,20000", ",5000", "--sizes 1000,", "--sizes ", "--rounds 5", "--rounds 1", "--lines 3 4", "--lines 1 1")

func main() {
	only := flag.String("only", "", "measure only the sections that begin with these `words`, separated by commas")
	trial := flag.Bool("quick", false, "try it out: measure little, and print the page instead of writing it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measured(ctx, *only, *trial); err != nil {
		fmt.Fprintln(os.Stderr, "measured:", err)
		os.Exit(1)
	}
}

func measured(ctx context.Context, only string, trial bool) error {
	text, err := os.ReadFile(pagePath)
	if err != nil {
		return err
	}
	sections := split(string(text))
	here := hostFacts(ctx)
	if only != "" && !trial && !strings.Contains(sections[0], here) {
		return fmt.Errorf("%s is of another machine, or of other versions, than\n%s\nMeasure all sections: leave ONLY out", pagePath, here)
	}
	servers, err := os.MkdirTemp("", "measured")
	if err != nil {
		return err
	}
	defer stopServers(servers)
	began, load := time.Now(), firstMatch(ctx, `\S+`, "cat", "/proc/loadavg")
	stamp := began.Format(time.DateOnly) + ", commit " + commit(ctx)
	var failed []error
	done := 0
	for i, s := range sections {
		if i == 0 || !chosen(s, only) {
			continue
		}
		done++
		start := time.Now()
		s, err := fill(s, func(command string) (string, error) {
			if trial {
				command = quick.Replace(command)
			}
			return output(ctx, command, servers)
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // the others are worth having
			failed = append(failed, fmt.Errorf("this section stays as it was: %w", err))
			continue
		}
		sections[i] = stamps.ReplaceAllLiteralString(s, fmt.Sprintf("Measured %s, in %.0f s.", stamp, time.Since(start).Seconds()))
		sections[0] = facts.ReplaceAllLiteralString(sections[0], fmt.Sprintf("%s| last run | %s: %s in %.0f s, load average %s before |\n",
			here, stamp, cmp.Or(only, "all sections"), time.Since(began).Seconds(), load))
		if trial {
			fmt.Print("\n", join([]string{sections[0], sections[i]}))
		} else if err := os.WriteFile(pagePath, []byte(join(sections)), 0o600); err != nil {
			return err
		}
	}
	switch {
	case done == 0:
		return fmt.Errorf("no section of %s begins with %q", pagePath, only)
	case !trial:
		failed = append(failed, quoteIn(readmePath, sections))
	}
	return errors.Join(failed...)
}

// chosen is whether a section begins with one of the words.
func chosen(section, only string) bool {
	words := strings.Split(strings.ToLower(only), ",")
	return slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(strings.ToLower(section), word) })
}

// output runs a command, shows what it prints, and returns that.
func output(ctx context.Context, command, servers string) (string, error) {
	fmt.Println("\n+ " + command)
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Env = append(os.Environ(), "RUN="+servers)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &out), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a stop reaches what it started, too
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 20 * time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w", command, err)
	}
	return out.String(), nil
}

// stopServers stops what scripts/bench.sh has started, and removes it.
func stopServers(dir string) {
	for _, name := range []string{"kafka", "redis"} {
		at := filepath.Join(dir, name)
		if _, err := os.Stat(at); err != nil {
			continue // no benchmark needed it
		}
		if out, err := exec.Command("scripts/"+name+".sh", "stop", at).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "measured: stop %s: %v\n%s", name, err, out)
		}
	}
	_ = os.RemoveAll(dir)
}

// commit names the commit, and says whether more than the results has changed since.
func commit(ctx context.Context) string {
	head := "`" + firstMatch(ctx, `\w+`, "git", "rev-parse", "--short", "HEAD") + "`"
	if firstMatch(ctx, `\S`, "git", "status", "--porcelain", "--", ".", ":!"+pagePath, ":!"+readmePath) != unknown {
		return head + " and changes"
	}
	return head
}

// hostFacts are the rows of the page's first table that say where and with what it was measured.
func hostFacts(ctx context.Context) string {
	return fmt.Sprintf("| machine | %s, %d cores, %s GiB, Linux %s |\n| versions | Go %s, Kafka %s, Redis %s |\n",
		firstMatch(ctx, `(?m)^model name\s*: (.*)`, "cat", "/proc/cpuinfo"), runtime.NumCPU(),
		firstMatch(ctx, `(?m)^Mem:\s+(\d+)`, "free", "-g"), firstMatch(ctx, `[\d.]+`, "uname", "-r"), strings.TrimPrefix(runtime.Version(), "go"),
		firstMatch(ctx, `version=([0-9.]+)`, "cat", "scripts/kafka.sh"), firstMatch(ctx, `v=([0-9.]+)`, "redis-server", "--version"))
}

const unknown = "unknown"

// firstMatch is the first match, or its group, in what a program prints.
func firstMatch(ctx context.Context, pattern string, program ...string) string {
	out, _ := exec.CommandContext(ctx, program[0], program[1:]...).Output()
	m := regexp.MustCompile(pattern).FindStringSubmatch(string(out))
	if m == nil {
		return unknown
	}
	return m[len(m)-1]
}
