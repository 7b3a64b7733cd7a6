// Package clients checks the examples in other languages against a real Kafka.
package clients

import (
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
)

// Node's package had a version of its own, 0.0.0.
func TestPackagesHaveOneVersion(t *testing.T) {
	versions := map[string]string{}
	for file, pattern := range map[string]string{
		"python/pyproject.toml": `(?m)^version = "(.*)"$`, "python/src/tallygate/__init__.py": `(?m)^__version__ = "(.*)"$`,
		"node/package.json": `"version": "(.*)"`, "node/package-lock.json": `"version": "(.*)"`, "java/pom.xml": `<version>(.*)</version>`,
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(pattern).FindSubmatch(text); found != nil {
			versions[file] = string(found[1])
		}
	}
	for file, version := range versions {
		if version != versions["java/pom.xml"] {
			t.Errorf("%s has the version %s: %v", file, version, versions)
		}
	}
	if len(versions) != 5 {
		t.Errorf("not each has a version: %v", versions)
	}
}

const partitions = 12

// uids of every length modulo four, as murmur2 takes four bytes at a time, and beyond ASCII.
var uids = []string{"1", "42", "abc", "u-17", "01J8Z3K4M5", "somebody@example.com", "漢字", "ünïcode",
	"a rather longer name of somebody", "0", "7-", "65536", "u-18", "u-19", "u-20", "u-21"}

func murmur2(uid string) int { return int(event.Partition([]byte(uid), partitions)) }

func TestPythonPlacesByMurmur2(t *testing.T) {
	brokers := servers.Kafka(t)
	emits(t, brokers, murmur2, script(t, "python.sh"), "emit.py")
}

func TestPythonPlacesByCRC32ByDefault(t *testing.T) {
	brokers := servers.Kafka(t)
	crc := func(uid string) int { return int(crc32.ChecksumIEEE([]byte(uid)) % partitions) }
	emits(t, brokers, crc, script(t, "python.sh"), "emit.py", "--default-partitioner")
}

// emits runs a client that writes two events for each uid, and finds them where they belong.
func emits(t *testing.T, brokers []string, place func(uid string) int, command ...string) {
	t.Helper()
	topic := servers.Name(t)
	create(t, brokers, topic)
	servers.DropTopics(t, brokers, topic)
	args := slices.Concat(command, []string{strings.Join(brokers, ","), topic, "2"}, uids)
	if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}

	got, want := map[string]int{}, map[string]int{}
	for _, uid := range uids {
		want[fmt.Sprintf("%s in %d", uid, place(uid))] += 2
	}
	ids := map[string]bool{}
	for p := range partitions {
		for _, m := range read(t, brokers, topic, p) {
			e := decode(t, m.Value)
			if e.UID != string(m.Key) || e.API != "search.query" || e.Time == event.NoTime {
				t.Errorf("key %s has %+v", m.Key, e)
			}
			ids[e.ID] = true
			got[fmt.Sprintf("%s in %d", e.UID, p)]++
		}
	}
	for _, where := range []map[string]int{got, want} {
		for w := range where {
			if got[w] != want[w] {
				t.Errorf("%s: %d events, want %d", w, got[w], want[w])
			}
		}
	}
	if len(ids) != 2*len(uids) {
		t.Errorf("%d ids for %d events", len(ids), 2*len(uids))
	}
}

func create(t *testing.T, brokers []string, topic string) {
	t.Helper()
	conn, err := kafka.Dial("tcp", brokers[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	err = conn.CreateTopics(kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1})
	if err != nil {
		t.Fatal(err)
	}
}

// read returns all that is in a partition now.
func read(t *testing.T, brokers []string, topic string, partition int) []kafka.Message {
	t.Helper()
	conn, err := kafka.DialLeader(t.Context(), "tcp", brokers[0], topic, partition)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	end, err := conn.ReadLastOffset()
	if err != nil {
		t.Fatal(err)
	}
	var out []kafka.Message
	for int64(len(out)) < end {
		m, err := conn.ReadMessage(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

func decode(t *testing.T, value []byte) event.Event {
	t.Helper()
	d := event.NewDecoder()
	events, err := d.Decode(value, nil, nil, nil)
	if err != nil || len(d.Bad) > 0 || len(events) != 1 {
		t.Fatalf("%s is %d events (%v, %v)", value, len(events), err, d.Bad)
	}
	return events[0]
}

// script runs one of scripts/ and returns what it printed.
func script(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{"../scripts/" + name}, args...)...)
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, failure.String())
	}
	return strings.TrimSpace(string(out))
}
