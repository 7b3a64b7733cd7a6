package cli

import (
	"testing"

	"github.com/tallygate/tallygate/event"
)

func TestSpansAndShares(t *testing.T) {
	for span, want := range map[event.Micros]string{6*event.Day + 23*event.Hour + event.Minute: "6d 23h", 2*event.Hour + 5*event.Minute: "2h 5m", 2*event.Hour + 5*event.Second: "2h", 40 * event.Second: "40s", event.Day: "1d"} {
		if got := spanText(span.Duration()); got != want {
			t.Errorf("%v is %q, want %q", span.Duration(), got, want)
		}
	}
	for of, want := range map[float64]string{0: "0.0%", 0.0001: "<0.1%", 0.302: "30.2%", 1: "100.0%"} {
		if got := share(of); got != want {
			t.Errorf("%v is %q, want %q", of, got, want)
		}
	}
	for of, want := range map[float64]string{0.4: "0.4", 9.96: "10", 1570.2: "1570"} {
		if got := rate(of); got != want {
			t.Errorf("%v a second is %q, want %q", of, got, want)
		}
	}
}
