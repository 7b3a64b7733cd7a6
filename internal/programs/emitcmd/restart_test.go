package emitcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// follows runs the command on a file, until the returned function interrupts it.
func (c *command) follows(t *testing.T, path string, args ...string) (stop func()) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	exit := make(chan int)
	go func() { exit <- c.run(ctx, nil, append([]string{"-f", path}, args...)...) }()
	return func() {
		t.Helper()
		interrupt()
		if code := <-exit; code != 0 {
			t.Errorf("exit status %d: %s", code, c.stderr.String())
		}
	}
}

// distinct returns how many different ids there are.
func distinct(events []event.Event) int {
	ids := map[string]bool{}
	for _, e := range events {
		ids[e.ID] = true
	}
	return len(ids)
}

// 300 requests stay 300 after four starts; equal lines in one second are as many as there are.
func TestARestartSendsNothingTwice(t *testing.T) {
	c := newCommand(t)
	now := time.Now()
	path := write(t, "access.log", strings.Repeat(logLine(now, "/a"), 300))
	for range 4 {
		stop := c.follows(t, path, "--from", "start")
		testrun.Eventually(t, "300 events", func() bool { return c.count(topic) >= 300 })
		stop()
	}
	appendTo(t, path, logLine(now, "/a")+logLine(now, "/a"))
	stop := c.follows(t, path)
	testrun.Eventually(t, "two more", func() bool { return c.count(topic) >= 302 })
	stop()
	if all := c.events(t, topic); len(all) != 302 || distinct(all) != 302 {
		t.Errorf("%d events, %d different ids", len(all), distinct(all))
	}
}

// The first start counts nothing that happened before it, but the whole of the line that is being
// written; a later start knows where it was, whatever --from says.
func TestTheFirstStartBeginsAtTheEnd(t *testing.T) {
	c := newCommand(t)
	now := time.Now()
	half := len(logLine(now, "/b")) / 2
	path := write(t, "access.log", logLine(now, "/a")+logLine(now, "/b")[:half])
	stop := c.follows(t, path)
	testrun.Eventually(t, "it says where it begins", func() bool { return strings.Contains(c.stderr.String(), "--from start sends these, too") })
	appendTo(t, path, logLine(now, "/b")[half:])
	testrun.Eventually(t, "the line that was begun", func() bool { return c.count(topic) == 1 })
	appendTo(t, path, `{"api":"half`)
	stop()
	appendTo(t, path, `.a","uid":"1"}`+"\n")
	stop = c.follows(t, path, "--from", "start")
	testrun.Eventually(t, "the other one", func() bool { return c.count(topic) == 2 })
	stop()
	apis := map[string]bool{}
	for _, e := range c.events(t, topic) {
		apis[e.API] = true
	}
	if !apis["get.b"] || !apis["half.a"] {
		t.Errorf("events %v", apis)
	}
	if strings.Contains(c.stderr.String(), "malformed") || strings.Contains(c.stdout.String(), "1 lines skipped") {
		t.Errorf("half a line was sent: %s", c.stderr.String())
	}
}

// What was rotated, copied and packed while nobody looked is read.
func TestRotationWhileItIsStopped(t *testing.T) {
	t.Parallel()
	c := newCommand(t)
	now := time.Now()
	path := write(t, "access.log", logLine(now, "/a"))
	stop := c.follows(t, path, "--from", "start")
	testrun.Eventually(t, "the first line", func() bool { return c.count(topic) == 1 })
	stop()
	appendTo(t, path, logLine(now, "/b"))
	for from, to := range map[string]string{path: path + ".2"} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	appendTo(t, path+".1", logLine(now, "/c"))
	appendTo(t, filepath.Join(filepath.Dir(path), "access-admin.log"), logLine(now, "/other"))
	appendTo(t, path, logLine(now, "/d"))
	stop = c.follows(t, path)
	testrun.Eventually(t, "four lines", func() bool { return c.count(topic) == 4 })
	stop()
	if all := c.events(t, topic); len(all) != 4 || distinct(all) != 4 {
		t.Errorf("%d events, %d different ids", len(all), distinct(all))
	}
}

func TestOneProcessForAState(t *testing.T) {
	c := newCommand(t)
	path := write(t, "access.log", logLine(time.Now(), "/a"))
	state := filepath.Join(t.TempDir(), "new", "state.json")
	stop := c.follows(t, path, "--from", "start", "--state", state)
	testrun.Eventually(t, "an event", func() bool { return c.count(topic) == 1 })
	other := newCommand(t)
	if code := other.run(t.Context(), nil, "-f", path, "--state", state); code != 1 || !strings.Contains(other.stderr.String(), "another process follows with it") {
		t.Errorf("a second one: exit status %d, %s", code, other.stderr.String())
	}
	stop()
	for _, args := range [][]string{{path + "2"}, {path, "--prefix", "other"}} {
		appendTo(t, path+"2", "")
		other := newCommand(t)
		if code := other.run(t.Context(), nil, append([]string{"-f", "--state", state}, args...)...); code != 1 || !strings.Contains(other.stderr.String(), "the state is of "+path+", sent to tallygate.events") {
			t.Errorf("%q: exit status %d, %s", args, code, other.stderr.String())
		}
	}
	if err := os.WriteFile(state, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := other.run(t.Context(), nil, "-f", path, "--state", state); code != 1 || !strings.Contains(other.stderr.String(), "read the state file "+state) {
		t.Errorf("a damaged state: exit status %d, %s", code, other.stderr.String())
	}
}

// A state that cannot be written is told, and stops nothing.
func TestAStateThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	c := newCommand(t)
	now := time.Now()
	path := write(t, "access.log", logLine(now, "/a"))
	folder := filepath.Join(t.TempDir(), "state")
	stop := c.follows(t, path, "--from", "start", "--state", filepath.Join(folder, "s.json"))
	testrun.Eventually(t, "an event", func() bool { return c.count(topic) == 1 })
	if err := os.Rename(folder, folder+".away"); err != nil {
		t.Fatal(err)
	}
	lines := int64(1)
	testrun.Eventually(t, "it says so", func() bool {
		appendTo(t, path, logLine(now, "/b"))
		lines++
		return strings.Contains(c.stderr.String(), "write the state: ")
	})
	testrun.Eventually(t, "it goes on", func() bool { return c.count(topic) == lines })
	if err := os.Rename(folder+".away", folder); err != nil {
		t.Fatal(err)
	}
	stop()
	var st state
	text, err := os.ReadFile(filepath.Join(folder, "s.json"))
	if err == nil {
		err = json.Unmarshal(text, &st)
	}
	if info, _ := os.Stat(path); err != nil || st.Offset != info.Size() {
		t.Errorf("the state is %s: %v", text, err)
	}
	if n := strings.Count(c.stderr.String(), "write the state: "); n != 1 {
		t.Errorf("it was said %d times", n)
	}
}

func TestWhereTheStateIs(t *testing.T) {
	for _, test := range []struct {
		env  map[string]string
		uid  int
		want string
	}{
		{map[string]string{"STATE_DIRECTORY": "/var/lib/emitter", "HOME": "/home/a"}, 0, "/var/lib/emitter/emit-access.log-"},
		{map[string]string{"XDG_STATE_HOME": "/s", "HOME": "/home/a"}, 0, "/s/tallygate/emit-"},
		{map[string]string{"HOME": "/root"}, 0, "/var/lib/tallygate/emit-"},
		{map[string]string{"HOME": "/home/a"}, 1000, "/home/a/.local/state/tallygate/emit-"},
	} {
		got, err := defaultState(testrun.Env(test.env), test.uid, "/var/log/access.log", topic)
		if err != nil || !strings.HasPrefix(got, test.want) || !strings.HasSuffix(got, ".json") {
			t.Errorf("%v, %d: %s %v", test.env, test.uid, got, err)
		}
	}
	if _, err := defaultState(testrun.NoEnv, 1000, "/a", topic); err == nil {
		t.Error("without a home")
	}
}

func TestRanksOfRotatedFiles(t *testing.T) {
	for name, want := range map[string]string{
		"access.log.1": "{2 }", "access.log.0": "{1 }", "access.log.12.gz": "{13 }", "access.log.old": "{1 }",
		"access.log-20261121": "{0 20261121}", "access.log-20261121-1700.gz": "{0 20261121-1700}",
		"access-2026-11-21T10-00-00.000.log": "{0 2026-11-21T10-00-00.000}", "access.3.log": "{4 }",
		"access.log": "", "access.log.1.bak": "", "access-admin.log": "", "error.log.1": "", "access.log.state": "",
	} {
		got := ""
		if r, ok := rankOf("access.log", name); ok {
			got = fmt.Sprint(r)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
