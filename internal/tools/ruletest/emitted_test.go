package ruletest

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/engine"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// The gallery's tests emit what a middleware emits. While a verdict denies a request nothing happens, so there is no
// event but of what was under way, which comes within moments, and of the denial.
func TestTheGalleryEmitsWhatAMiddlewareEmits(t *testing.T) {
	files, err := filepath.Glob("../../../testdata/rules/*_test.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		file, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		suite, err := NewSuite(t.Context(), file, OnDisk)
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range suite.sets {
			for i := range file.Tests {
				for _, line := range deniedAndEmitted(set, &file.Tests[i]) {
					t.Errorf("%s:%s", path, line)
				}
			}
		}
	}
}

// deniedAndEmitted lists the events of a test that nobody would emit, each line of the file once.
func deniedAndEmitted(set *rules.Set, test *Test) (lines []string) {
	const underWay = 10 * event.Second
	counting, told := engine.New(set), map[int]bool{}
	var out engine.Outcome
	for i := range test.Events {
		e := &test.Events[i]
		at := e.Event.Time
		for _, h := range counting.Decide(&e.Event, at) {
			denies := h.State == verdict.Block && h.Mode == verdict.Enforce && h.Action != verdict.ActLog && h.Action != verdict.ActThrottle
			if denies && e.Outcome != event.OutcomeLimited && at > h.Since+underWay && !told[e.Line] {
				told[e.Line] = true
				lines = append(lines, fmt.Sprintf("%d: %s denies %s since %v, and it is emitted at %v", e.Line, h.Rule, e.API, h.Since, at))
			}
		}
		counting.Apply(&e.Event, e.Broker, verdict.Cause{}, &out)
	}
	return lines
}
