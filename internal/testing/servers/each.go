package servers

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/run/devstack"
)

// EachKafka runs a test on the embedded Kafka, and on the shared one.
func EachKafka(t *testing.T, test func(t *testing.T, brokers []string)) {
	t.Run("kfake", func(t *testing.T) {
		Embedded(t)
		test(t, EmbeddedKafka(t))
	})
	t.Run("kafka", func(t *testing.T) { test(t, Kafka(t)) })
}

// EmbeddedKafka starts a Kafka inside this process, and returns its brokers.
func EmbeddedKafka(t *testing.T) []string {
	t.Helper()
	// It outlives what cleanups end.
	s, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.Kafka
}

// Embedded skips a test on a stand-in where real servers are required: the fast suite has run it, and the
// same test runs on a real server beside it.
func Embedded(t testing.TB) {
	t.Helper()
	if os.Getenv("TALLYGATE_TEST_REQUIRE") == "1" {
		t.Skip("on a real server instead")
	}
}

// Nightly leaves a test to `make nightly`, unless TALLYGATE_TEST_NIGHTLY names its suite, one of those of
// scripts/suites.
func Nightly(t testing.TB, suite string) {
	t.Helper()
	if named := os.Getenv("TALLYGATE_TEST_NIGHTLY"); named != "1" && !slices.Contains(strings.Split(named, ","), suite) {
		t.Skip("make nightly runs it: " + suite) // scripts/testlog reads this
	}
}
