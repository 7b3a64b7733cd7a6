package aggregate

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// logged collects what a member logs.
type logged struct{ testrun.Output }

func (l *logged) contains(parts ...string) bool {
	for line := range strings.Lines(l.String()) {
		found := 0
		for _, p := range parts {
			if strings.Contains(line, p) {
				found++
			}
		}
		if found == len(parts) {
			return true
		}
	}
	return false
}

func (l *logged) count(part string) int {
	return strings.Count(l.String(), part)
}

// into makes a member log there.
func (l *logged) into(c *Config) { c.Logger = slog.New(slog.NewTextHandler(l, nil)) }

// set changes a topic's setting.
func (r *rig) set(topic, key, value string) {
	r.t.Helper()
	admin, err := sarama.NewClusterAdminFromClient(r.client)
	if err != nil {
		r.t.Fatal(err)
	}
	change := map[string]sarama.IncrementalAlterConfigsEntry{key: {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}
	if err := admin.IncrementalAlterConfig(sarama.TopicResource, topic, change, false); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "the broker knows it", func() bool {
		is, err := admin.DescribeConfigs([]*sarama.ConfigResource{{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{key}}}, sarama.DescribeConfigsOptions{})
		return err == nil && len(is) == 1 && len(is[0].Configs) == 1 && is[0].Configs[0].Value == value
	})
}

// A topic that suddenly takes only small records stops its partitions, which say why and retry.
// Once the setting is fixed, everything is counted once.
func TestATopicThatTakesNoLargeRecords(t *testing.T) {
	eachTopic(t, func(t *testing.T, r *rig, topic string) {
		if topic == r.names.Events {
			topic = r.names.DeadLetters
		}
		said := &logged{}
		m := r.begin(compile(t, byIPAndUID), said.into)
		l := r.load()
		l.emit(100)
		l.counted(m)
		r.set(topic, "max.message.bytes", "120")
		l.emit(900) // enough for verdicts
		r.emitTo(r.names.Events, 0, "not an event, and far too long for a topic that takes so little: "+strings.Repeat("x", 200))
		eventually(t, "it says which topic, and how to fix it", func() bool { return said.contains("level=ERROR", topic, "max.message.bytes") })
		eventually(t, "it tries again", func() bool { return said.count("taking it over again") >= 2 })
		r.set(topic, "max.message.bytes", "1048576")
		l.counted(m)
		l.emit(50)
		l.counted(m)
		l.stays(m)
	})
}

// Dead letters are truncated to what their topic takes, even if many come at once.
func TestDeadLettersAreCutToFitTheirTopic(t *testing.T) {
	onRealKafka(t, func(t *testing.T, r *rig) {
		set := compile(t, yearly)
		m := r.begin(set)
		m.end(t)
		const most = 150 << 10
		r.set(r.names.DeadLetters, "max.message.bytes", "153600")
		noise := strings.Map(func(c rune) rune { return c + 1 }, strings.Repeat("nothing that compresses away is left of it ", 100))
		bad := "{" + strings.Repeat(noise, 1_900_000/len(noise)) // an event topic takes it
		r.emitTo(r.names.Events, 0, bad)
		for range 20 {
			r.emitTo(r.names.Events, 0, bad[:100_000])
		}
		r.emit(hit("u1", "a.b"))
		m = r.begin(set)
		eventually(t, "the good one is counted", func() bool { return r.count("u1", "per-year", m) == event.One })
		eventually(t, "all bad ones are kept", func() bool { return r.letters() == 21 })
		for p := range int32(rigPartitions) {
			for _, letter := range r.records(r.names.DeadLetters, p) {
				if header(letter, "offset") == "0" && (len(letter.Value) > most || len(letter.Value) < most/2 || header(letter, "cut-from") == "") {
					t.Errorf("the large one has %d bytes, cut from %q", len(letter.Value), header(letter, "cut-from"))
				}
			}
		}
	})
}
