package aggregator

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// writesMore has the engine write what no answer makes it write: dead letters, a blown fuse, an enforcer's kill switch,
// and a permit. It returns the records when all are there.
func writesMore(t *testing.T, brokers []string, prefix string, client *redis.Client) (records string) {
	t.Helper()
	off := presence.Beat{ID: "QX", Kind: presence.DecisionServer, Name: "edge-1", Started: time.Now(), At: time.Now(), OffCause: "file", OffSince: time.Now()}
	if err := presence.Write(t.Context(), client, prefix, off); err != nil {
		t.Fatal(err)
	}
	admitter, err := admit.New(admit.Config{Redis: client, Prefix: prefix, Poll: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	stop := testrun.Start(t, admitter.Run)
	testrun.Eventually(t, "a permit is granted", func() bool {
		got, err := admitter.Admit(t.Context(), admit.Request{API: "sms", Dims: []event.Dim{{Name: "attrs.phone", Value: "p1"}}})
		return err == nil && got.Admitted && !got.InDoubt && got.Event.ID != ""
	})
	stop()
	events := []string{"nonsense", `{"uid":"8"}`, `[{"uid":"8","api":"nothing"},{"uid":"8"}]`}
	for i := range 60 { // in each partition more than the 19 that a fuse allows
		events = append(events, fmt.Sprintf(`{"uid":"8","api":"fused","attrs":{"phone":"p%d"}}`, i+10))
	}
	emitTo(t, brokers, prefix+".events", events...)
	testrun.Eventually(t, "Redis has the verdicts", func() bool {
		fields := client.HKeys(t.Context(), "{"+prefix+":0}:verdicts").Val()
		return len(slices.DeleteFunc(fields, func(name string) bool { return !strings.HasSuffix(name, "|fused") })) == 60
	})
	testrun.Eventually(t, "Kafka has the rest", func() bool {
		records = kafkaRecords(t, brokers, prefix)
		return !slices.ContainsFunc([]string{`"blown":`, `"origins":`, `"producers":`, `"type":"fuse","at":"<time>","by":"agg-1","rule":"fused","partition":1`,
			`"type":"fuse","at":"<time>","by":"agg-1","rule":"fused","partition":0`, `"type":"kill-switch"`, "header index: 1\n", `"notify":true,"verdict":{"rule":"fused","key":{"attrs.phone":"p<n>"},"state":"block","mode":"shadow"`},
			func(text string) bool { return !strings.Contains(records, text) })
	})
	return records
}

// kafkaRecords are the different records of a group's topics, without what differs from run to run.
func kafkaRecords(t *testing.T, brokers []string, prefix string) string {
	t.Helper()
	client, err := sarama.NewClient(brokers, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	names, err := client.Topics()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, topic := range slices.Sorted(slices.Values(names)) {
		if !strings.HasPrefix(topic, prefix) {
			continue
		}
		seen := map[string]bool{}
		eachRecord(t, client, topic, func(m *sarama.ConsumerMessage) {
			text := "key " + readable(m.Key) + "\n"
			for _, h := range m.Headers {
				text += "header " + readable(h.Key) + ": " + brief(h.Value) + "\n"
			}
			if m.Value == nil && strings.HasSuffix(topic, "-table") {
				return // whether an erased key was written before depends on the machine's pace
			}
			if string(m.Key) == "\x00granted" && !strings.Contains(string(m.Value), `"holds_of"`) {
				return // as is whether permits may be granted before a version of the rules is known
			}
			if string(m.Key) != shard.CheckpointKey {
				seen[steadyRecord(text+readable(m.Value)+"\n")] = true
				return
			}
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(m.Value, &fields); err != nil {
				t.Fatal(err)
			}
			for name, value := range fields { // which of them are there at first depends on the machine's pace
				if string(value) != "null" {
					seen[steadyRecord(text+fmt.Sprintf("%q:%s\n", name, value))] = true
				}
			}
		})
		fmt.Fprintf(&b, "== %s\n\n%s\n", topic, strings.Join(slices.Sorted(maps.Keys(seen)), "\n"))
	}
	return b.String()
}

func eachRecord(t *testing.T, client sarama.Client, topic string, see func(*sarama.ConsumerMessage)) {
	t.Helper()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	ids, err := client.Partitions(topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		end, err := client.GetOffset(topic, id, sarama.OffsetNewest)
		if err != nil {
			t.Fatal(err)
		}
		if end == 0 {
			continue
		}
		p, err := consumer.ConsumePartition(topic, id, sarama.OffsetOldest)
		if err != nil {
			t.Fatal(err)
		}
		for m := range p.Messages() {
			if see(m); m.Offset >= end-1 {
				break
			}
		}
		_ = p.Close()
	}
}

// redisKeys are a group's keys in Redis: their types, fields and the shapes of values.
func redisKeys(t *testing.T, client *redis.Client) string {
	t.Helper()
	ctx := t.Context()
	seen := map[string]bool{}
	for _, key := range client.Keys(ctx, "*").Val() {
		kind := client.Type(ctx, key).Val()
		lines := map[string]bool{}
		switch kind {
		case "hash":
			for field, value := range client.HGetAll(ctx, key).Val() {
				lines[readable([]byte(field))+" = "+readable([]byte(value))] = true
			}
		case "zset":
			for _, z := range client.ZRangeWithScores(ctx, key, 0, -1).Val() {
				lines[fmt.Sprintf("%s by %.0f", readable([]byte(z.Member.(string))), z.Score)] = true
			}
		case "stream":
			for _, m := range client.XRange(ctx, key, "-", "+").Val() {
				names := slices.Sorted(maps.Keys(m.Values))
				lines["entry of "+strings.Join(names, " ")] = true
			}
		case "set":
			for _, m := range client.SMembers(ctx, key).Val() {
				lines[readable([]byte(m))] = true
			}
		case "list":
			for _, m := range client.LRange(ctx, key, 0, -1).Val() {
				lines[readable([]byte(m))] = true
			}
		default:
			text := readable([]byte(client.Get(ctx, key).Val()))
			if strings.HasPrefix(text, "[") {
				text = inLists.ReplaceAllString(text, `"<name>"`)
			}
			lines[text] = true
		}
		text := map[string]bool{}
		for line := range lines {
			text["  "+steadyRecord(line)] = true
		}
		seen[steadyRecord(readable([]byte(key)))+": "+kind+"\n"+strings.Join(slices.Sorted(maps.Keys(text)), "\n")+"\n"] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), "\n")
}

// readable is a text; of what is none the first byte, which is a version, and what follows as JSON.
func readable(b []byte) string {
	switch {
	case b == nil:
		return "nil"
	case utf8.Valid(b) && !strings.ContainsFunc(string(b), func(r rune) bool { return r < ' ' && r != 0 && r != '\n' }):
		return strings.ReplaceAll(string(b), "\x00", `\0`)
	}
	text := fmt.Sprintf("binary %02x…", b[0])
	if i := strings.IndexByte(string(b), '{'); i > 0 && b[len(b)-1] == '}' && utf8.Valid(b[i:]) {
		text += string(b[i:])
	}
	return text
}

// brief is readable for what may be random bytes.
func brief(b []byte) string {
	if text := readable(b); !strings.HasPrefix(text, "binary ") && !strings.Contains(text, `\0`) {
		return text
	}
	return fmt.Sprintf("%d bytes", len(b))
}

func steadyRecord(text string) string {
	text = testrun.Steady(text, append(unsteadyFields, "keys", "rules_version", "pid", "epoch", "done", "offset", "until", "version", "longest_hold")...)
	for _, m := range ofOneRecord {
		text = m.what.ReplaceAllString(text, m.by)
	}
	return text
}

// inLists matches names of runs and lives, and hashes.
var inLists = regexp.MustCompile(`"[0-9a-z]+"`)

// ofOneRecord differs from run to run, or from one of many alike to the next.
var ofOneRecord = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`"answers-\d"`), `"answers-<n>"`},
	{regexp.MustCompile(`fence/\d+`), "fence/<n>"},
	{regexp.MustCompile(`^[-_A-Za-z0-9]{43} =`), "<member> ="},
	{regexp.MustCompile(`"[-_A-Za-z0-9]{22}"`), `"<topic id>"`},
	{regexp.MustCompile(`([="])p\d\d\b`), "${1}p<n>"},
	{regexp.MustCompile(`"(run|life)":"[0-9a-z]+"`), `"$1":"<name>"`},
	{regexp.MustCompile(`^[0-9a-z]{6,}$`), "<name>"},
	{regexp.MustCompile(`(stamp = ).*`), "$1<name>.<n>"},
	{regexp.MustCompile(`\b\d{10,}\b`), "<n>"},
	{regexp.MustCompile(`\b[0-9a-f]{12,64}\b`), "<hash>"},
	{regexp.MustCompile(`("<hash>":("<hash>"|\{[^}]*\}),?)+`), `"<hash>":…`},
	{regexp.MustCompile(`([\[,])-?\d+\b`), "$1<n>"},
	{regexp.MustCompile(`([\[,])-?\d+\b`), "$1<n>"},
	{regexp.MustCompile(`\{"\d":\[`), `{"<n>":[`},
	{regexp.MustCompile(`(?m) = \d+$`), " = <n>"},
	{regexp.MustCompile(`= (<hash>|<n>)( (<hash>|<n>))+`), "= <n>…"},
	{regexp.MustCompile(`(<hash>|<n>) = \{"format".*`), "<n> = the record of the topic"},
}
