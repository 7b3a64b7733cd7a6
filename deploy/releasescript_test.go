package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A release's tags and versions are made in a copy of what they are made of.
func TestReleaseScript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script, err := os.ReadFile("../scripts/release.sh")
	if err != nil {
		t.Fatal(err)
	}
	put("scripts/release.sh", string(script))
	put("go.mod", "module github.com/tallygate/tallygate\n\ngo 1.26\n")
	modules, err := filepath.Glob("../adapters/*/go.mod")
	if err != nil || len(modules) < 3 {
		t.Fatal(modules, err)
	}
	for _, file := range modules {
		mod, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		put(strings.TrimPrefix(file, "../"), string(mod))
	}
	put("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\nlater\n\n## [0.2.0] - 2026-12-01\n\n### Added\n\n* this\n\n## [0.1.0] - 2026-11-01\n\nthat\n")
	in := func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"commit", "-qm", "all"}} {
		if out, err := in("git", args...); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	release := filepath.Join(dir, "scripts/release.sh")
	if out, err := in(release, "notes", "0.2.0"); err != nil || out != "\n### Added\n\n* this\n" {
		t.Errorf("the notes: %v %q", err, out)
	}
	for version, want := range map[string]string{"0.3.0": "no section 0.3.0", "v0.2.0": "is no version", "0.2": "is no version"} {
		if out, err := in(release, "tag", version); err == nil || !strings.Contains(out, want) {
			t.Errorf("tag %s: %v %s", version, err, out)
		}
	}
	put("uncommitted", "")
	if out, err := in(release, "tag", "0.2.0"); err == nil || !strings.Contains(out, "commit your changes first") {
		t.Errorf("beside what is not committed: %v %s", err, out)
	}
	if err := os.Remove(filepath.Join(dir, "uncommitted")); err != nil {
		t.Fatal(err)
	}
	if out, err := in(release, "tag", "0.2.0"); err != nil || !strings.Contains(out, "git push --atomic origin HEAD") {
		t.Fatalf("%v %s", err, out)
	}
	tags, _ := in("git", "tag", "--points-at", "HEAD")
	if got, want := len(strings.Fields(tags)), len(modules); got != want || !strings.Contains(tags, "adapters/gin/v0.2.0\n") || strings.Contains(tags, "conformance") {
		t.Errorf("%d tags, want one for the root and each adapter:\n%s", got, tags)
	}
	for _, file := range modules {
		mod, err := os.ReadFile(filepath.Join(dir, strings.TrimPrefix(file, "../")))
		if err != nil || !strings.Contains(string(mod), "tallygate/tallygate v0.2.0\n") || strings.Contains(string(mod), "v0.0.0\n") {
			t.Errorf("%s: %v\n%s", file, err, mod)
		}
	}
	if out, err := in(release, "tag", "0.2.0"); err == nil || !strings.Contains(out, "keeps its number") {
		t.Errorf("once more: %v %s", err, out)
	}
}
