package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A subject is the packages that are changed, and what is known of their tests.
type subject struct {
	work      string // a directory of its own, outside of the work tree
	mutants   []*mutant
	unreached int
	tests     []*test
	root      string
}

// A test is one top-level test, example, or fuzz target with its seeds.
type test struct {
	dir, name string
	took      time.Duration
	covered   map[string][]cover // by file
}

// cover is a block of statements that a test ran.
type cover struct{ fromLine, fromCol, toLine, toCol int }

type pkg struct {
	Dir, ImportPath                    string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Module                             struct{ Path, Dir string }
}

// look runs each test once by itself, and finds the places that they reach.
func look(ctx context.Context, work, pattern string) (*subject, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-json", pattern).Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", pattern, err)
	}
	s := &subject{work: work}
	var all []*mutant
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p pkg
		if err := d.Decode(&p); err != nil {
			return nil, err
		}
		s.root = p.Module.Dir
		if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 {
			if err := s.runEach(ctx, p, pattern); err != nil {
				return nil, err
			}
		}
		for _, name := range p.GoFiles {
			dir, _ := filepath.Rel(p.Module.Dir, p.Dir)
			file := filepath.ToSlash(filepath.Join(dir, name))
			found, err := mutantsOf(filepath.Join(p.Dir, name), file)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	slices.SortStableFunc(s.tests, func(a, b *test) int { return cmp.Or(cmp.Compare(a.dir, b.dir), cmp.Compare(a.took, b.took)) })
	for _, m := range all {
		if len(s.reaching(m)) > 0 {
			s.mutants = append(s.mutants, m)
		} else {
			s.unreached++
		}
	}
	return s, nil
}

// runEach runs each test of a package, and notes how long it took and what it reached.
func (s *subject) runEach(ctx context.Context, p pkg, pattern string) error {
	binary, profile := filepath.Join(s.work, "cover.test"), filepath.Join(s.work, "cover.out")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-coverpkg="+pattern, "-o", binary, p.ImportPath)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go test -c %s: %w\n%s", p.ImportPath, err, out)
	}
	list := exec.CommandContext(ctx, binary, "-test.list=.")
	list.Dir = p.Dir
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list the tests of %s: %w", p.ImportPath, err)
	}
	for _, name := range strings.Fields(string(out)) {
		if strings.HasPrefix(name, "Benchmark") {
			continue
		}
		began := time.Now()
		one := exec.CommandContext(ctx, binary, "-test.short", "-test.run=^"+name+"$", "-test.coverprofile="+profile)
		one.Dir = p.Dir
		if out, err := one.CombinedOutput(); err != nil {
			return fmt.Errorf("%s of %s fails without a change: %w\n%s", name, p.ImportPath, err, out)
		}
		t := &test{dir: p.Dir, name: name, took: time.Since(began), covered: map[string][]cover{}}
		if err := t.read(profile, p.Module.Path); err != nil {
			return err
		}
		s.tests = append(s.tests, t)
	}
	return nil
}

var profiled = regexp.MustCompile(`^(.+):(\d+)\.(\d+),(\d+)\.(\d+) \d+ (\d+)$`)

func (t *test) read(profile, module string) error {
	text, err := os.ReadFile(profile)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		f := profiled.FindStringSubmatch(strings.TrimSpace(line))
		if f == nil || f[6] == "0" {
			continue
		}
		var c cover
		for i, to := range []*int{&c.fromLine, &c.fromCol, &c.toLine, &c.toCol} {
			*to, _ = strconv.Atoi(f[i+2])
		}
		file := strings.TrimPrefix(f[1], module+"/")
		t.covered[file] = append(t.covered[file], c)
	}
	return nil
}

// reaching are the tests that run what a mutant changes.
func (s *subject) reaching(m *mutant) (tests []*test) {
	for _, t := range s.tests {
		if slices.ContainsFunc(t.covered[m.file], m.in) {
			tests = append(tests, t)
		}
	}
	return tests
}

const (
	patience = 10 * time.Second // beyond ten times what a test takes
	fast     = 200 * time.Millisecond
)

// try builds a mutant, and runs the tests that reach it: the fast ones, and then each of the others.
func (s *subject) try(ctx context.Context, m *mutant, worker int) fate {
	at := func(name string) string { return filepath.Join(s.work, strconv.Itoa(worker)+name) }
	overlay, _ := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(s.root, m.file): at(".go")}})
	if os.WriteFile(at(".go"), m.mutated(), 0o600) != nil || os.WriteFile(at(".json"), overlay, 0o600) != nil {
		return invalid
	}
	var groups [][]*test // of one package each
	for _, t := range s.reaching(m) {
		last := len(groups) - 1
		if last >= 0 && t.took < fast && groups[last][0].dir == t.dir {
			groups[last] = append(groups[last], t)
		} else {
			groups = append(groups, []*test{t})
		}
	}
	built := ""
	for _, g := range groups {
		if built != g[0].dir {
			built = g[0].dir
			build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay="+at(".json"), "-o", at(".test"), ".")
			build.Dir = built
			if build.Run() != nil {
				return invalid
			}
		}
		if !passes(ctx, at(".test"), g) {
			return killed
		}
	}
	return lived
}

// passes runs tests of one package. A mutant may want all memory there is, so it gets a bound.
func passes(ctx context.Context, binary string, tests []*test) bool {
	var names []string
	limit := patience
	for _, t := range tests {
		names = append(names, t.name)
		limit += 10 * t.took
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	run := exec.CommandContext(ctx, "sh", "-c", `ulimit -v 6000000; exec "$0" "$@"`, binary,
		"-test.short", "-test.failfast", "-test.run=^("+strings.Join(names, "|")+")$")
	run.Dir = tests[0].dir
	return run.Run() == nil
}
