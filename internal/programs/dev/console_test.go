package dev_test

import (
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// A newcomer opens the address that is printed first, and sees the real log being counted.
func TestTheConsoleShowsTheSampleBeingCounted(t *testing.T) {
	r := start(t, nil)
	at := r.sees(`console +(http://\S+) shows it`)[1]
	if text := r.screen.String(); strings.Index(text, at) > strings.Index(text, "Kafka  ") {
		t.Errorf("the console's address does not come first:\n%s", text)
	}
	testrun.Eventually(t, "every link is seen to work", func() bool {
		page := get(t, at)
		return strings.Contains(page, "events arrive") && strings.Contains(page, "every partition is counted") && strings.Contains(page, "1 enforcer, all up to date")
	})
	r.endsWell()
}
