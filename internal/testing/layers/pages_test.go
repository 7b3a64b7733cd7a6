package layers

import (
	"cmp"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/rules"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence   = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	outside = regexp.MustCompile(`^(https?|mailto):`)
)

// eachPage calls do for each page of the repository.
func eachPage(t *testing.T, do func(path, text string)) {
	t.Helper()
	eachFile(t, func(path string, content []byte) {
		if filepath.Ext(path) == ".md" {
			do(path, string(content))
		}
	})
}

// Links within the repository lead to a file, and to a heading in it.
func TestLinksLeadSomewhere(t *testing.T) {
	anchors := map[string][]string{} // of a page
	prose := map[string]string{}     // its text, without code
	eachPage(t, func(path, text string) {
		prose[path] = fence.ReplaceAllString(text, "")
		for _, h := range heading.FindAllStringSubmatch(prose[path], -1) {
			anchors[path] = append(anchors[path], anchorOf(h[1]))
		}
	})
	for path, text := range prose {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if outside.MatchString(m[1]) {
				continue
			}
			if err := follow(path, m[1], anchors); err != nil {
				t.Errorf("%s: link to %s: %v", path, m[1], err)
			}
		}
	}
}

// Pages name files and folders that are there. Decisions and measurements are of their time.
func TestPagesNameFilesThatAreThere(t *testing.T) {
	var paths []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains(notOurs, d.Name()) {
			return filepath.SkipDir
		}
		path, _ = filepath.Rel(root, path)
		paths = append(paths, "/"+path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	eachPage(t, func(page, text string) {
		if strings.HasPrefix(page, "docs/adr/") || page == "docs/internals/measurements.md" {
			return
		}
		for _, m := range codePath.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			found++
			want := regexp.MustCompile("/" + strings.ReplaceAll(regexp.QuoteMeta(m[1]), `\*`, `[^/]*`) + "$")
			if !slices.ContainsFunc(paths, want.MatchString) {
				t.Errorf("%s names `%s`, which is not there", page, m[1])
			}
		}
	})
	if found < 50 {
		t.Errorf("%d paths found", found)
	}
}

// codePath is a path in code: one of a Go file, or one that begins with a folder of this repository.
var codePath = regexp.MustCompile(
	"`((?:[a-z0-9_*]+/)*[a-z0-9_*]+\\.go|(?:windows|rules|pipeline|internal|cmd|bench|examples|clients|adapters|deploy|scripts|tools)/[a-z0-9_*/.-]*[a-z0-9_*-])`")

// follow follows a link of a page. It knows the anchors of each page.
func follow(from, to string, anchors map[string][]string) error {
	target, anchor, _ := strings.Cut(to, "#")
	file := from
	if target != "" {
		name, err := url.PathUnescape(target)
		if err != nil {
			return err
		}
		file = filepath.Join(filepath.Dir(from), name)
	}
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		return err
	}
	if anchor != "" && filepath.Ext(file) == ".md" && !slices.Contains(anchors[filepath.Clean(file)], anchor) {
		return fmt.Errorf("%s has no such heading", file)
	}
	return nil
}

var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchorOf is the anchor that GitHub gives to a heading.
func anchorOf(heading string) string {
	return strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

func TestAnchors(t *testing.T) {
	for heading, want := range map[string]string{
		"POST /v1/check": "post-v1check", "Group, ids and ACLs": "group-ids-and-acls", "`when`": "when",
	} {
		if got := anchorOf(heading); got != want {
			t.Errorf("%q has the anchor %q, want %q", heading, got, want)
		}
	}
}

// Rule sets, and single rules, that a page shows are good ones.
func TestRulesInPagesCompile(t *testing.T) {
	found := 0
	eachPage(t, func(path, text string) {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			src := m[2]
			switch {
			case m[1] != "yaml":
				continue
			case strings.HasPrefix(src, "- name:"):
				src = "apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: page}\nspec:\n  rules:\n    " +
					strings.ReplaceAll(strings.TrimSpace(src), "\n", "\n    ")
			case !strings.HasPrefix(src, "apiVersion:"):
				continue
			}
			found++
			if _, err := rules.CompileWith(path, []byte(src), besidePage(text)); err != nil {
				t.Errorf("%v\nof\n%s", err, src)
			}
		}
	})
	if found < 4 {
		t.Errorf("%d rule sets found", found)
	}
}

// besidePage reads the files that rules of a page name: those of the gallery, or what the page shows.
func besidePage(text string) func(name string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		if content, err := os.ReadFile("../../../testdata/rules/" + name); err == nil {
			return content, nil
		}
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			if m[1] == strings.TrimPrefix(filepath.Ext(name), ".") {
				return []byte(m[2]), nil
			}
		}
		return nil, fs.ErrNotExist
	}
}

// The Go that a page shows is a part of an example, so it compiles.
func TestGoInPagesIsOfTheExamples(t *testing.T) {
	var examples strings.Builder
	eachFile(t, func(path string, content []byte) {
		if strings.HasPrefix(path, "examples/") && filepath.Ext(path) == ".go" {
			examples.Write(content)
		}
	})
	eachPage(t, func(path, text string) {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			if m[1] == "go" && !strings.Contains(examples.String(), m[2]) {
				t.Errorf("%s shows Go that is in no example:\n%s", path, m[2])
			}
		}
	})
}

// A page shows a file of an example, or a part of it, as it is: -rewrite writes it there. A part goes from the first
// line that begins so, indented or not, to the first one behind it that begins so, or to the second (2×).
func TestFilesInPagesAreOfTheExamples(t *testing.T) {
	found := 0
	eachPage(t, func(page, text string) {
		written := shownFile.ReplaceAllStringFunc(text, func(shown string) string {
			found++
			m := shownFile.FindStringSubmatch(shown)
			part, err := partOf(filepath.Join(root, m[2]), m[3], m[4], m[5])
			if err != nil {
				t.Errorf("%s, %s: %v", page, m[1], err)
			}
			return fmt.Sprintf("%s\n\n```%s\n%s```\n\n<!-- /file -->", m[1], m[6], part)
		})
		if written != text {
			testrun.Golden(t, filepath.Join(root, page), written)
		}
	})
	if found < 30 {
		t.Errorf("%d files found", found)
	}
}

var shownFile = regexp.MustCompile("(?s)(<!-- file (\\S+)(?: \"([^\"\n]+)\" … (?:(\\d+)× )?\"([^\"\n]+)\")? -->)\n+```([a-z]*)\n.*?\n```\n+<!-- /file -->")

// partOf returns a file's lines from the first that begins with first to the nth behind it that begins with last.
func partOf(path, first, nth, last string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil || first == "" {
		return string(content), err
	}
	lines := strings.SplitAfter(string(content), "\n")
	begin := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(strings.TrimLeft(line, " \t"), first) })
	if begin < 0 {
		return "", fmt.Errorf("no line begins with %q", first)
	}
	n, _ := strconv.Atoi(cmp.Or(nth, "1"))
	for i, line := range lines[begin+1:] {
		if strings.HasPrefix(line, last) {
			if n--; n == 0 {
				return strings.Join(lines[begin:begin+i+2], ""), nil
			}
		}
	}
	return "", fmt.Errorf("behind %q no line begins with %q", first, last)
}

// Configurations of proxies stand in pages as parts of files that a test runs a proxy with.
func TestConfigurationsInPagesAreOfTheExamples(t *testing.T) {
	eachPage(t, func(path, text string) {
		for _, m := range fence.FindAllStringSubmatch(shownFile.ReplaceAllString(text, ""), -1) {
			if path == "docs/proxies.md" && m[1] != "console" || slices.Contains([]string{"nginx", "caddy", "haproxy", "lua"}, m[1]) {
				t.Errorf("%s shows a configuration that is of no file:\n%s", path, m[2])
			}
		}
	})
}
