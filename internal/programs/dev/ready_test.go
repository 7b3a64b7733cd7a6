package dev_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/dev"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/emit"
)

const strictLogins = threeLogins + `    - {name: coupons, match: {api: coupon.redeem}, limit: 1, per: 1h, strict: true}
`

// lines are the objects that --json has written, each a whole line.
func (r *running) lines() (all []map[string]any) {
	r.t.Helper()
	text := r.screen.String()
	for one := range strings.Lines(text) {
		var object map[string]any
		if !strings.HasSuffix(one, "\n") {
			break // it is being written
		}
		if err := json.Unmarshal([]byte(one), &object); err != nil {
			r.t.Fatalf("a line is no object: %v\n%s", err, one)
		}
		all = append(all, object)
	}
	return all
}

// line waits for a line of a type, and returns it.
func (r *running) line(what string) (found map[string]any) {
	r.t.Helper()
	testrun.Eventually(r.t, "a line of the type "+what, func() bool {
		for _, one := range r.lines() {
			if one["type"] == what {
				found = one
				return true
			}
		}
		return false
	})
	return found
}

// A test in any language starts dev, waits for one file, finds everything in it, and has its verdicts on
// standard output. When the file is there a strict rule grants permits: nothing is in doubt any more.
func TestReadyFileAndLines(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ready.json")
	if err := os.WriteFile(path, []byte(`{"kafka": "of one that was killed"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, nil, "--input", "none", "--rules", file(t, "rules.yaml", strictLogins), "--ready-file", path, "--json")
	var at struct {
		Console, Kafka, Redis, Prefix, GRPC, Aggregator, Metrics string
		Events                                                   string `json:"events_topic"`
		Decisions                                                string `json:"decision_server"`
	}
	testrun.Eventually(t, "the file is there", func() bool {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || strings.Contains(string(text), "killed") {
			return false
		}
		if err == nil {
			err = json.Unmarshal(text, &at)
		}
		if err != nil {
			t.Fatal(err)
		}
		return true
	})
	if at.Events != "tallygate.events" || at.Prefix != "tallygate" || at.GRPC == "" || at.Redis == "" {
		t.Errorf("%+v", at)
	}
	for i, want := range []string{`"admitted":true`, `"limited":true`} {
		var body bytes.Buffer
		testrun.Eventually(t, "Redis answers within a second, however much else runs here", func() bool {
			resp, err := http.Post(at.Decisions+"/v1/admit", "application/json", strings.NewReader(`{"uid": "7", "api": "coupon.redeem"}`))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body.Reset()
			_, _ = body.ReadFrom(resp.Body)
			return !strings.Contains(body.String(), "Redis does not answer") && !strings.Contains(body.String(), "Redis answers late")
		})
		if !strings.Contains(strings.ReplaceAll(body.String(), " ", ""), want) {
			t.Errorf("question %d, right after the file was there: %s, want %s", i+1, &body, want)
		}
	}
	em, err := emit.New(emit.Config{Brokers: []string{at.Kafka}})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		em.Emit(event.Event{UID: "7", API: "login"})
	}
	v, _ := r.line("verdict")["verdict"].(map[string]any)
	if v["rule"] != "logins" || v["state"] != "block" {
		t.Errorf("a verdict is %v", v)
	}
	if err := em.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := get(t, at.Metrics); !strings.Contains(got, "tallygate_events_total") {
		t.Error("there are no metrics where the file says")
	}
	if got := get(t, at.Aggregator+"/v1/explain?uid=7"); !strings.Contains(got, `"logins"`) {
		t.Errorf("the aggregator says %s", got)
	}
	if got := get(t, at.Console); !strings.Contains(got, "Tallygate") {
		t.Errorf("the console says %s", got)
	}
	r.endsWell()
	all := r.lines()
	if first := all[0]; first["type"] != "started" || first["kafka"] != at.Kafka || first["console"] != at.Console || first["decision_server"] != at.Decisions || first["rules"] != "test" {
		t.Errorf("the first line is %v", first)
	}
	if r.line("ready")["at"] == "" || all[len(all)-1]["type"] != "stopped" {
		t.Errorf("the last line is %v", all[len(all)-1])
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

// What can be told of a file's name is told before anything starts, and no folder is removed.
func TestReadyFileThatCannotBe(t *testing.T) {
	folder := t.TempDir()
	for path, want := range map[string]string{
		filepath.Join(folder, "none", "ready.json"): "no such file or directory",
		folder: "is no file",
	} {
		var out, log testrun.Output
		if status := dev.Command(testrun.Context(t), []string{"--listen", "127.0.0.1:0", "--ready-file", path}, nil, &out, &log, testrun.NoEnv); status != 2 {
			t.Errorf("%s: status %d", path, status)
		}
		if !strings.Contains(log.String(), "--ready-file: ") || !strings.Contains(log.String(), want) {
			t.Errorf("%s: %s", path, &log)
		}
	}
}
