package event_test

import (
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestTraceParent(t *testing.T) {
	got, sampled := event.ParseTrace(traceparent)
	if !sampled || got.String() != traceparent {
		t.Fatalf("%v, %v", got, sampled)
	}
	if (event.Trace{}).String() != "" {
		t.Error("none is not empty")
	}
	for text, want := range map[string]bool{
		strings.Replace(traceparent, "-01", "-03", 1):             true,  // random trace id, W3C level 2
		strings.Replace(traceparent, "-01", "-00", 1):             false, // not sampled
		"01" + traceparent[2:]:                                    true,
		"01" + traceparent[2:] + "-what is next":                  true,
		"01" + traceparent[2:] + "what is next":                   false,
		traceparent + "-more":                                     false, // version 00 ends here
		"ff" + traceparent[2:]:                                    false,
		"":                                                        false,
		traceparent[:54]:                                          false,
		strings.ToUpper(traceparent):                              false,
		strings.Replace(traceparent, "4bf", "4bg", 1):             false,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01": false,
		strings.ReplaceAll(traceparent, "-", "_"):                 false,
	} {
		got, sampled := event.ParseTrace([]byte(text))
		if sampled != want {
			t.Errorf("%q: sampled is %v", text, sampled)
		}
		if got.IsZero() == want {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestTraceAllocatesNothing(t *testing.T) {
	header, dst := []byte(traceparent), make([]byte, 0, 64)
	if n := testrun.Allocs(100, func() {
		trace, _ := event.ParseTrace(header)
		dst = trace.AppendTo(dst[:0])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
