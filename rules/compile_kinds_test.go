package rules

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/windows"
)

func TestEachKindOfWindowCanBeWritten(t *testing.T) {
	golden, err := os.ReadFile("testdata/kinds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(rulesPage)
	if err != nil {
		t.Fatal(err)
	}
	kinds := 0
	for kind := windows.Tumbling; !strings.HasPrefix(kind.String(), "kind "); kind++ {
		kinds++
		if int(kind) >= len(windowKinds) || windowKinds[kind].read == nil || windowKinds[kind].hash == nil || windowKinds[kind].words == nil {
			t.Errorf("windowKinds in compile_kinds.go has no entry for %v windows, or it lacks read, hash or words", kind)
		}
		if !bytes.Contains(golden, []byte("window: "+kind.String())) && kind != windows.Sliding { // the default
			t.Errorf("add a rule with %v windows to testdata/kinds.yaml, then run: go test ./rules -run CountersAre -rewrite", kind)
		}
		if !bytes.Contains(page, []byte("\n| `"+kind.String()+"` ")) {
			t.Errorf("add a row for %v windows to the table of windows in docs/rules.md", kind)
		}
		if kind.Frees() == "" {
			t.Errorf("the table in windows/kind.go does not say what lowers the count of a %v", kind)
		}
	}
	if kinds < 5 {
		t.Errorf("%d kinds", kinds)
	}
}
