package notify

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/notify/config"
	"github.com/tallygate/tallygate/internal/notify/note"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

func ran(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = Command(testrun.Context(t), args, strings.NewReader(""), &stdout, &stderr, testrun.NoEnv)
	return status, stdout.String(), stderr.String()
}

func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheckAndTest(t *testing.T) {
	b := newInbox(t)
	file := written(t, one(b.URL, "on: [command, fuse]"))
	if status, out, errs := ran(t, "--notify", file, "--check"); status != 0 || !strings.Contains(out, "notify.yaml: valid: 1 receivers, 1 routes\n  hook (webhook) is told of command, fuse\n") {
		t.Errorf("%d %s %s", status, out, errs)
	}
	if status, out, errs := ran(t, "--notify", file, "--test", "hook"); status != 0 || !strings.Contains(out, "hook (webhook) has taken the message "+b.ids[0]) || b.got[0].Kind != note.Test {
		t.Errorf("%d %s %s", status, out, errs)
	}
	b.set(answers(404, ""))
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--notify", file, "--test", "hook"}, 1, "hook (webhook) does not take the message: denied: it answers 404"},
		{[]string{"--notify", file, "--test", "hok"}, 2, "has no receiver of this name"},
		{[]string{"--check"}, 2, "--notify FILE is missing"},
		{[]string{"--notify", file + "x", "--check"}, 2, "read --notify: open"},
		{[]string{"--notify", written(t, "routes: []"), "--check"}, 2, "notify.yaml:1:1: there is no `receivers`"},
		{[]string{"--notify", written(t, one(b.URL, "on: hits")), "--check"}, 2, "give --redis HOST:PORT"},
		{[]string{"--notify", written(t, one(b.URL, "on: hits"))}, 2, "give --redis HOST:PORT"},
		{[]string{"--notify", file, "--kafka-sasl", "plain"}, 2, "--kafka-sasl needs --kafka-user"},
		{[]string{"--notify", file, "more"}, 2, `"more" is not an option`},
	} {
		if status, out, errs := ran(t, c.args...); status != c.status || !strings.Contains(errs, c.want) {
			t.Errorf("%v: %d %s %s", c.args, status, out, errs)
		}
	}
}

// Each piece of YAML in the page is a file that is taken, or a part of one.
func TestThePagesFiles(t *testing.T) {
	page, err := os.ReadFile("../../docs/notify.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"hook-url": "https://example.com/x", "hook-secret": "a", "hook-secret-before": "b", "hook-token": "c", "slack-url": "https://example.com/y", "teams-url": "https://example.com/z", "smtp-password": "d"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pieces := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(pieces) < 8 {
		t.Fatalf("%d pieces of YAML", len(pieces))
	}
	for _, piece := range pieces {
		text := strings.ReplaceAll(piece[1], "/etc/tallygate", dir)
		if !strings.Contains(text, "receivers:") {
			text = "receivers: [{name: hook, webhook: {url: 'https://example.com/'}}]\n" + text
		}
		if !strings.Contains(text, "routes:") {
			text += "\nroutes: []\n"
		}
		if _, err := config.Parse("notify.md", []byte(text), testrun.NoEnv); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
	}
	for _, kind := range note.Kinds() {
		if !strings.Contains(string(page), "\n| `"+string(kind)+"` | ") {
			t.Errorf("the page does not say when %s is told", kind)
		}
	}
}
