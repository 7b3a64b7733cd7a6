// Package servers finds the real Kafka and Redis that tests run against, and starts others for the
// tests that stop and kill theirs.
//
// The shared ones come from the environment:
//
//	TALLYGATE_TEST_KAFKA    host:port,…  (make kafka-up prints it)
//	TALLYGATE_TEST_REDIS    host:port
//	TALLYGATE_TEST_REQUIRE  1: a test without its server or program fails instead of being skipped, and
//	                        stand-ins are left out
//	TALLYGATE_TEST_NIGHTLY  suites, as in kills,browsers: also their tests; 1: those of all
package servers

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
)

// Kafka returns the brokers of the shared Kafka, or skips the test when there is none.
func Kafka(t testing.TB) []string {
	t.Helper()
	return strings.Split(shared(t, "TALLYGATE_TEST_KAFKA"), ",")
}

// Redis returns the address of the shared Redis, or skips the test when there is none.
func Redis(t testing.TB) string {
	t.Helper()
	return shared(t, "TALLYGATE_TEST_REDIS")
}

func shared(t testing.TB, variable string) string {
	t.Helper()
	addr := os.Getenv(variable)
	if addr == "" {
		absent(t, variable+" is not set")
	}
	return addr
}

// Program returns the path of a program that not every machine has, such as promtool. It skips the
// test if the program is not installed.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		absent(t, err.Error())
	}
	return path
}

// absent skips the test for want of a server, or fails it where servers are required.
func absent(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("TALLYGATE_TEST_REQUIRE") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// Name returns a prefix for the names of topics, groups and Redis keys that no other test
// and no other run uses. It is at most 60 bytes of [a-z0-9-], and is logged.
func Name(t testing.TB) string {
	t.Helper()
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, t.Name())
	name = fmt.Sprintf("%.50s-%.8s", name, strings.ToLower(rand.Text()))
	t.Logf("names begin with %s", name)
	return name
}

// DropTopics deletes the topics whose names begin with prefix when the test ends. It logs what it
// cannot delete: names are unique, so that leftovers do no harm.
func DropTopics(t testing.TB, brokers []string, prefix string) {
	t.Helper()
	t.Cleanup(func() {
		// No context of the test's: that one has ended.
		conn, err := kafka.Dial("tcp", brokers[0])
		if err != nil {
			t.Logf("drop topics: %v", err)
			return
		}
		defer func() { _ = conn.Close() }()
		partitions, err := conn.ReadPartitions()
		if err != nil {
			t.Logf("drop topics: %v", err)
			return
		}
		seen := map[string]bool{}
		for _, p := range partitions {
			if strings.HasPrefix(p.Topic, prefix) && !seen[p.Topic] {
				seen[p.Topic] = true
				if err := conn.DeleteTopics(p.Topic); err != nil {
					t.Logf("drop topic %s: %v", p.Topic, err)
				}
			}
		}
	})
}
