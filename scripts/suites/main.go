// Command suites chooses what .ci/run runs of `make nightly`: the suites that a change touches, as many as a run has
// time for, and one that is drawn by the day. It prints them, separated by commas, and says why on standard error.
//
//	go run ./scripts/suites           what the change from the merge base with main, or else the last commit, touches
//	go run ./scripts/suites -commands of the suites chosen=kills,site the make targets: site
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

func main() {
	commands := flag.String("commands", "", "print the make targets of these `SUITES` instead")
	seconds := flag.Int("seconds", 150, "choose touched suites that take at most this long together; 0: all of them")
	flag.Parse()
	if *commands != "" {
		fmt.Println(strings.Join(targets(strings.Split(*commands, ",")), "\n"))
		return
	}
	files, err := changed(".")
	if err != nil {
		fmt.Fprintf(os.Stderr, "what changed can't be told, so all suites run: %v\n", err)
		fmt.Println(strings.Join(names(suites), ","))
		return
	}
	fmt.Println(strings.Join(choose(suites, files, *seconds, time.Now().YearDay(), os.Stderr), ","))
}

// choose returns the names of the suites that run, and says why, and which are left to `make nightly`. The one that
// most of the changed files touch is first.
func choose(all []suite, files []string, most, day int, out io.Writer) (chosen []string) {
	touched := map[string][]string{}
	for _, s := range all {
		touched[s.name] = s.touchedBy(files)
	}
	order := slices.Clone(all)
	slices.SortStableFunc(order, func(a, b suite) int { return cmp.Compare(len(touched[b.name]), len(touched[a.name])) })
	left, rest := most, []suite{}
	for _, s := range order {
		switch by := touched[s.name]; {
		case len(by) == 0:
			rest = append(rest, s)
		case most > 0 && s.seconds > left:
			fmt.Fprintf(out, "left to make nightly: %s is touched by %s, and takes longer than what is left of the run\n", s.name, few(by))
			rest = append(rest, s)
		default:
			left -= s.seconds
			fmt.Fprintf(out, "%s: touched by %s\n", s.name, few(by))
			chosen = append(chosen, s.name)
		}
	}
	rest = slices.DeleteFunc(rest, func(s suite) bool { return s.seconds > aDraw })
	if len(rest) > 0 {
		slices.SortFunc(rest, func(a, b suite) int { return cmp.Compare(a.name, b.name) })
		s := rest[day%len(rest)]
		fmt.Fprintf(out, "%s: drawn by the day\n", s.name)
		chosen = append(chosen, s.name)
	}
	slices.Sort(chosen)
	return chosen
}

// few names one of the files, and how many more there are.
func few(files []string) string {
	if len(files) == 1 {
		return files[0]
	}
	return fmt.Sprintf("%s and %d more", files[0], len(files)-1)
}

func names(list []suite) (out []string) {
	for _, s := range list {
		out = append(out, s.name)
	}
	return out
}

// targets are the make targets of those suites that are not tests on real servers.
func targets(chosen []string) (out []string) {
	for _, s := range suites {
		if s.target != "" && slices.Contains(chosen, s.name) {
			out = append(out, s.target)
		}
	}
	return out
}

// changed returns the files that differ from the merge base with main, or on main from the commit before.
func changed(dir string) ([]string, error) {
	head, err := git(dir, "rev-parse", "HEAD")
	if err != nil {
		return nil, err
	}
	base, err := git(dir, "merge-base", "HEAD", "main")
	if err != nil {
		base, err = git(dir, "merge-base", "HEAD", "origin/main")
	}
	if err != nil || base == head {
		if base, err = git(dir, "rev-parse", "HEAD^"); err != nil {
			return nil, err
		}
	}
	diff, err := git(dir, "diff", "--name-only", base)
	others, err2 := git(dir, "ls-files", "--others", "--exclude-standard")
	return strings.Fields(diff + "\n" + others), errors.Join(err, err2)
}

func git(dir string, args ...string) (string, error) {
	out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
