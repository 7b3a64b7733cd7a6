package rules

import (
	"strings"
	"testing"

	"github.com/tallygate/tallygate/windows"
)

func TestEachKindOfWindowCanBeWritten(t *testing.T) {
	kinds := 0
	for kind := windows.Tumbling; !strings.HasPrefix(kind.String(), "kind "); kind++ {
		kinds++
		if int(kind) >= len(windowKinds) || windowKinds[kind].read == nil || windowKinds[kind].hash == nil {
			t.Errorf("windowKinds has no entry for %v windows", kind)
		}
		if kind.Frees() == "" {
			t.Errorf("nothing lets the count of a %v fall", kind)
		}
	}
	if kinds < 5 {
		t.Errorf("%d kinds", kinds)
	}
}
