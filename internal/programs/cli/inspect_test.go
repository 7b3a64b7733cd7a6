package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go"

	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/cli"
	"github.com/tallygate/tallygate/internal/testing/apitest"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/verdict"
)

// installation is the topics of one, and the tool with its options.
type installation struct {
	brokers []string
	prefix  string
	writer  *kafka.Writer
	client  *kafka.Client
}

// inspect runs a test against Kafka in this process and against the real one.
func inspect(t *testing.T, test func(t *testing.T, in *installation)) {
	servers.EachKafka(t, func(t *testing.T, brokers []string) { test(t, newInstallation(t, brokers)) })
}

const partitions = 3

func newInstallation(t *testing.T, brokers []string) *installation {
	t.Helper()
	in := &installation{brokers: brokers, prefix: servers.Name(t)}
	servers.DropTopics(t, brokers, in.prefix)
	transport := &kafka.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	in.client = &kafka.Client{Addr: kafka.TCP(brokers...), Timeout: 30 * time.Second, Transport: transport}
	var topics []kafka.TopicConfig
	for _, name := range []string{".events", ".verdicts", ".audit", ".dead-letters"} {
		topics = append(topics, kafka.TopicConfig{Topic: in.prefix + name, NumPartitions: partitions, ReplicationFactor: 1})
	}
	res, err := in.client.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: topics})
	if err != nil {
		t.Fatal(err)
	}
	for topic, err := range res.Errors {
		if err != nil {
			t.Fatalf("create %s: %v", topic, err)
		}
	}
	in.writer = &kafka.Writer{
		Transport: transport, Addr: kafka.TCP(brokers...), Balancer: byHand{},
		RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond,
	}
	t.Cleanup(func() { _ = in.writer.Close() })
	return in
}

// byHand leaves a message in the partition that it names.
type byHand struct{}

func (byHand) Balance(m kafka.Message, _ ...int) int { return m.Partition }

func (in *installation) write(t *testing.T, topic string, ms ...kafka.Message) {
	t.Helper()
	for i := range ms {
		ms[i].Topic = in.prefix + topic
	}
	if err := in.writer.WriteMessages(t.Context(), ms...); err != nil {
		t.Fatal(err)
	}
}

// run is the tool; it wants that exit status.
func (in *installation) run(t *testing.T, status int, stdin string, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	env := map[string]string{"TALLYGATE_KAFKA": strings.Join(in.brokers, ","), "TALLYGATE_PREFIX": in.prefix}
	if got := cli.Main(testrun.Context(t), args, strings.NewReader(stdin), &out, &errs, testrun.Env(env)); got != status {
		t.Fatalf("%q: exit status %d, want %d\n%s%s", args, got, status, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

// fields are a table's lines, each with its fields separated by one space.
func fields(table string) (lines []string) {
	for line := range strings.Lines(table) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func dims(text string) []event.Dim {
	key, err := event.ParseKey([]byte(text))
	if err != nil {
		panic(err)
	}
	return key
}

// fallen is a verdict that is in force from an hour before to an hour after base.
func fallen(base time.Time, key, rule string) verdict.Verdict {
	return verdict.Verdict{
		Rule: rule, Key: dims(key), Action: verdict.ActBlock, APIs: []string{"search.*"}, Count: 101 * event.One, Limit: 100 * event.One,
		Since: event.FromTime(base.Add(-time.Hour)), Until: event.FromTime(base.Add(time.Hour)), Seq: 7, Cause: verdict.Cause{ID: "e1", Partition: 1, Offset: 9},
	}
}

func record(partition int, v verdict.Verdict) kafka.Message {
	return kafka.Message{Partition: partition, Key: verdict.AppendRecordKey(nil, &v), Value: verdict.AppendJSON(nil, &v)}
}

// What is in force is the latest record of each record key, by the clock: neither what is over or
// cleared, nor what is to come, nor notices, nor the owners' own records.
func TestBlocks(t *testing.T) {
	inspect(t, func(t *testing.T, in *installation) {
		base := time.Now().UTC().Truncate(time.Second)
		span := event.FromTime(base.Add(-time.Hour)).String() + " " + event.FromTime(base.Add(time.Hour)).String()
		until := func(v verdict.Verdict, at time.Time) verdict.Verdict { v.Until = event.FromTime(at); return v }
		state := func(v verdict.Verdict, s verdict.State) verdict.Verdict { v.State = s; return v }
		over := until(fallen(base, "uid=7", "search"), base.Add(-time.Minute))
		coming := fallen(base, "uid=8", "search")
		coming.Since = event.FromTime(base.Add(time.Hour / 2))
		trial := fallen(base, "uid=42", "trial")
		trial.Mode, trial.Cause.ID = verdict.Shadow, ""
		cleared := fallen(base, "uid=9", "search")
		cleared.State, cleared.Until = verdict.Clear, cleared.Since
		warned := state(fallen(base, "uid=42", "search"), verdict.Warn)
		gone := record(2, fallen(base, "uid=6", "search"))
		in.write(t, ".verdicts",
			record(0, until(fallen(base, "uid=42", "search"), base.Add(time.Minute))), // it moves its end
			record(0, fallen(base, "uid=42", "search")), record(0, warned),
			record(1, fallen(base, "attrs.campaign=summer%20sale&uid=42", "ads/daily")), record(1, trial),
			record(2, fallen(base, "uid=9", "search")), record(2, cleared), record(2, over), record(2, coming),
			gone, kafka.Message{Partition: 2, Key: gone.Key},
			kafka.Message{Partition: 2, Key: []byte("\x00fence"), Value: []byte("own")},
			record(2, fallen(base, "ip=2001%3Adb8%3A%3A1", "signups")))
		const header = "KEY RULE ACTION SINCE UNTIL COUNT/LIMIT CAUSE"
		ads := "attrs.campaign=summer%20sale uid=42 ads/daily block " + span + " 101/100 e1 1@9"
		signups := "ip=2001:db8::1 signups block " + span + " 101/100 e1 1@9"
		search := "uid=42 search block " + span + " 101/100 e1 1@9"
		trialRow := "uid=42 trial block (shadow) " + span + " 101/100 1@9"
		for _, test := range []struct {
			args string
			want []string
		}{
			{"", []string{header, ads, signups, search}},
			{"--shadow", []string{header, ads, signups, search, trialRow}},
			{"uid=42", []string{header, ads, search}},
			{"uid=42 --rule ads", []string{header, ads}},
			{"uid=42 --rule ads/daily", []string{header, ads}},
			{"ip=2001:DB8:0::1", []string{header, signups}},
			{"ip=2001%3Adb8%3A%3A1", []string{header, signups}},
			{"attrs.campaign=summer%20sale uid=42", []string{header, ads}}, // as it was printed
			{"attrs.campaign=summer%20sale&uid=42", []string{header, ads}},
			{"uid=7", []string{"nothing is in force"}},
			{"uid=8", []string{"nothing is in force"}},
			{"uid=9", []string{"nothing is in force"}},
			{"uid=6", []string{"nothing is in force"}},
			{"--count", []string{"RULE ENFORCED", "ads/daily 1", "search 1", "signups 1"}},
			{"uid=42 --count --shadow", []string{"RULE ENFORCED SHADOW", "ads/daily 1 0", "search 1 0", "trial 0 1"}},
			{"uid=42 --count --shadow --json --rule trial", []string{`{"rule":"trial","enforce":0,"shadow":1}`}},
			{"uid=7 --json", nil},
		} {
			out, _ := in.run(t, 0, "", append([]string{"blocks"}, strings.Fields(test.args)...)...)
			if diff := cmp.Diff(test.want, fields(out)); diff != "" {
				t.Errorf("blocks %s (- expected, + got)\n%s", test.args, diff)
			}
		}
		out, _ := in.run(t, 0, "", "blocks", "--json", "--rule", "search")
		v, err := verdict.Parse([]byte(strings.TrimSpace(out)))
		if diff := cmp.Diff(fallen(base, "uid=42", "search"), v); err != nil || diff != "" {
			t.Errorf("blocks --json: %v\n%s", err, diff)
		}

		// What cannot be read is told: the list may lack something.
		in.write(t, ".verdicts", kafka.Message{Partition: 1, Key: []byte("uid=42|later"), Value: []byte(`{"of":"the future"}`)})
		out, stderr := in.run(t, 1, "", "blocks")
		if !slices.Contains(fields(out), search) || !strings.Contains(stderr, in.prefix+".verdicts/1@") || !strings.Contains(stderr, "1 record cannot be read") {
			t.Errorf("with a record that cannot be read:\n%s%s", out, stderr)
		}
	})
}

// What was, in the order of time over all partitions: verdicts and commands, and what a newer
// version writes as it is.
func TestAudit(t *testing.T) {
	inspect(t, func(t *testing.T, in *installation) {
		now := time.Now().UTC().Truncate(time.Second)
		ago := func(d time.Duration) string { return event.FromTime(now.Add(-d)).String() }
		entry := func(partition int, d time.Duration, line string) kafka.Message {
			return kafka.Message{Partition: partition, Time: now.Add(-d), Value: []byte(strings.ReplaceAll(line, "AT", ago(d)))}
		}
		published := func(partition int, d time.Duration, v verdict.Verdict) kafka.Message {
			return entry(partition, d, `{"type":"verdict","at":"AT","by":"aggregator-1","verdict":`+string(verdict.AppendJSON(nil, &v))+`}`)
		}
		search, cleared, warned, trial := fallen(now, "uid=42", "search"), fallen(now, "uid=42", "search"), fallen(now, "uid=43", "search"), fallen(now, "attrs.shop=s&uid=42", "ads/daily")
		cleared.State, warned.State, warned.Step, trial.Mode = verdict.Clear, verdict.Warn, "80%", verdict.Shadow
		in.write(t, ".audit",
			entry(1, 120*time.Hour, `{"type":"command","at":"AT","by":"support","command":"forget","key":"uid=9","keys":12,"reason":"ticket 77"}`),
			published(0, 72*time.Hour, search), published(0, 3*time.Hour, search), published(0, time.Minute, trial),
			entry(1, 150*time.Minute, `{"type":"command","at":"AT","by":"alice","command":"exempt","key":"uid=42","rule":"search","reason":"a \u001b[31mfriend","until":"`+ago(0)+`"}`),
			entry(1, 100*time.Minute, `{"type":"command","at":"AT","by":"bot","on_behalf_of":"bob","command":"unblock","reason":"all of them"}`),
			entry(1, 90*time.Minute, `{"type":"novelty","at":"AT","by":7,"rule":"search","key":["new"]}`),
			entry(1, 80*time.Minute, `{"type":"fuse","at":"AT","by":"aggregator-1","rule":"trial","partition":3,"keys":81233,"reason":"too many keys"}`),
			entry(0, 50*time.Minute, `{"type":"command","at":"AT","by":"ops","command":"unblock","keys":2,"each":["uid=50","attrs.shop=s&uid=51"],"reason":"a bug"}`),
			published(2, 2*time.Hour, cleared), published(2, time.Hour, warned))
		batch := ago(50*time.Minute) + " unblock, 2 keys - - ops a bug"
		erase := ago(120*time.Hour) + " erase, 12 keys uid=9 - support ticket 77"
		fuse := ago(80*time.Minute) + " fuse blown - trial aggregator-1 too many keys"
		const header = "TIME WHAT KEY RULE BY WHY"
		end := event.FromTime(now.Add(time.Hour)).String()
		old := ago(72*time.Hour) + " block until " + end + " uid=42 search aggregator-1 101 of 100, by event e1 1@9"
		block := ago(3*time.Hour) + strings.TrimPrefix(old, ago(72*time.Hour))
		exempt := ago(150*time.Minute) + " exempt until " + ago(0) + ` uid=42 search alice a \x1b[31mfriend`
		clear := ago(2*time.Hour) + " clear uid=42 search aggregator-1 101 of 100, by event e1 1@9"
		unblock := ago(100*time.Minute) + " unblock - - bot for bob all of them"
		novelty := ago(90*time.Minute) + ` novelty - search - {"type":"novelty","at":"` + ago(90*time.Minute) + `","by":7,"rule":"search","key":["new"]}`
		warn := ago(time.Hour) + " warn 80% uid=43 search aggregator-1 101 of 100, by event e1 1@9"
		shadow := ago(time.Minute) + " block (shadow) until " + end + " attrs.shop=s uid=42 ads/daily aggregator-1 101 of 100, by event e1 1@9"
		for _, test := range []struct {
			args string
			want []string
		}{
			{"", []string{header, block, exempt, clear, unblock, novelty, fuse, warn, batch, shadow}},
			{"--from 4d", []string{header, old, block, exempt, clear, unblock, novelty, fuse, warn, batch, shadow}},
			{"uid=50", []string{header, unblock, novelty, fuse, batch}},
			{"uid=51 attrs.shop=s", []string{header, unblock, novelty, fuse, batch}},
			{"--from 4d --to 1d", []string{header, old}},
			{"--from " + ago(150*time.Minute) + " --to " + ago(100*time.Minute), []string{header, exempt, clear}},
			{"uid=42", []string{header, block, exempt, clear, unblock, novelty, fuse, shadow}},
			{"uid=43 --rule search", []string{header, novelty, warn}},
			{"--rule ads", []string{header, shadow}},
			{"attrs.shop=s uid=42", []string{header, unblock, novelty, fuse, shadow}},
			{"--from 6d --to 100h", []string{header, erase}},
			{"--from 30s", nil},
		} {
			out, stderr := in.run(t, 0, "", append([]string{"audit"}, strings.Fields(test.args)...)...)
			if diff := cmp.Diff(test.want, fields(out)); diff != "" {
				t.Errorf("audit %s (- expected, + got)\n%s", test.args, diff)
			}
			if none := strings.HasPrefix(stderr, "no entry since "); none != (test.want == nil) {
				t.Errorf("audit %s tells %q", test.args, stderr)
			}
		}
		out, _ := in.run(t, 0, "", "audit", "--json", "--rule", "search", "uid=43")
		if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 2 || !strings.HasSuffix(novelty, " "+lines[0]) {
			t.Errorf("audit --json:\n%s", out)
		}

		in.write(t, ".audit", entry(1, time.Minute, "what?"))
		if out, stderr := in.run(t, 1, "", "audit"); !strings.Contains(out, "unblock") || !strings.Contains(stderr, in.prefix+".audit/1@5: parse the entry") {
			t.Errorf("with a record that cannot be read:\n%s%s", out, stderr)
		}
	})
}

// letter is a dead letter of the record at an offset of the event topic's partition 1.
func letter(offset int, ago time.Duration, reason, value string, more ...kafka.Header) kafka.Message {
	header := func(key, value string) kafka.Header { return kafka.Header{Key: key, Value: []byte(value)} }
	return kafka.Message{
		Partition: offset % partitions, Time: time.Now().Add(-ago).Truncate(time.Second), Value: []byte(value),
		Headers: append([]kafka.Header{
			header("reason", reason), header("detail", "what is wrong with\nit"), header("topic", "shop.events"),
			header("partition", "1"), header("offset", fmt.Sprint(offset)),
		}, more...),
	}
}

func index(n string) kafka.Header { return kafka.Header{Key: "index", Value: []byte(n)} }

var deadLetters = []kafka.Message{
	letter(1, 300*time.Hour, "not-json", "old"),
	letter(2, 5*time.Hour, "no-api", `{"uid":"42","id":"<2>"}`, index("-1")),
	letter(3, 4*time.Hour, "uid", `[{"uid":"1","api":"a.b"},{"uid":{},"api":"a.b","id":"3"},{"uid":"2","api":"a.b"}]`, index("1")),
	letter(4, 3*time.Hour, "not-json", "\xff\x1b[2J\x00", index("-1")),
	letter(5, 2*time.Hour, "too-large", `{"uid":"42","api":"`, index("-1"), kafka.Header{Key: "cut-from", Value: []byte("900000")}),
	letter(6, time.Hour, "no-api", `{"uid":"6","id":"6"}`, index("-1"), kafka.Header{Key: "cut-from", Value: []byte("20")}), // its key was
	letter(2, time.Minute, "no-api", `{"uid":"42","id":"<2>"}`, index("-1")),                                                // after a crash
}

func TestDeadLetters(t *testing.T) {
	inspect(t, func(t *testing.T, in *installation) {
		in.write(t, ".dead-letters", deadLetters...)
		out, _ := in.run(t, 0, "", "dead-letters")
		lines := fields(out)
		if len(lines) != 6 || lines[0] != "TIME REASON RECORD VALUE DETAIL" ||
			!strings.HasSuffix(lines[1], ` no-api shop.events/1@2 {"uid":"42","id":"<2>"} what is wrong with\nit`) ||
			!strings.HasSuffix(lines[3], ` not-json shop.events/1@4 \xff\x1b[2J\x00 what is wrong with\nit`) {
			t.Errorf("dead-letters\n%s", out)
		}
		for args, want := range map[string]int{"--from 30d": 7, "--from 30d --reason not-json": 3, "--reason no-api": 3, "--from 150m": 4} {
			if out, _ := in.run(t, 0, "", append([]string{"dead-letters"}, strings.Fields(args)...)...); len(fields(out)) != want {
				t.Errorf("dead-letters %s\n%s", args, out)
			}
		}
		out, stderr := in.run(t, 0, "", "dead-letters", "--reason", "cost")
		if out != "" || !strings.HasPrefix(stderr, "no dead letter since ") {
			t.Errorf("dead-letters --reason cost: %q, %q", out, stderr)
		}
	})
}

// What --json wrote is mended and sent: of arrays the elements that were bad, to the partition that
// the uid has, and nothing of what is still bad or was cut.
func TestDeadLettersAreSentAgain(t *testing.T) {
	inspect(t, func(t *testing.T, in *installation) {
		in.write(t, ".dead-letters", deadLetters...)
		out, _ := in.run(t, 0, "", "dead-letters", "--json")
		schema, err := apitest.CompileClosed(apidocs.DeadLetter)
		if err != nil {
			t.Fatal(err)
		}
		var got []map[string]any
		for line := range strings.Lines(out) {
			var d map[string]any
			if err := errors.Join(json.Unmarshal([]byte(line), &d), schema.Validate([]byte(line))); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			got = append(got, d)
		}
		if len(got) != 5 || got[2]["value_base64"] != "/xtbMkoA" || got[3]["cut_from"] != 900000.0 || got[4]["cut_from"] != nil || got[0]["topic"] != "shop.events" || got[0]["offset"] != 2.0 {
			t.Fatalf("dead-letters --json\n%s", out)
		}
		// Nothing was mended: all is still bad, and nothing sent.
		summary, stderr := in.run(t, 1, out, "dead-letters", "--direct", "--send", "-")
		if !strings.HasPrefix(summary, "0 events of 0 records sent, 5 lines refused") || !strings.Contains(stderr, "-:4: the value was cut from 900000 bytes") {
			t.Errorf("what is as it was: %s%s", summary, stderr)
		}
		mended := strings.NewReplacer(`{\"uid\":\"42\",`, `{\"uid\":\"42\",\"api\":\"a.b\",`, `{\"uid\":{},`, `{\"uid\":3,`, `{\"uid\":\"6\",`, `{\"uid\":\"6\",\"api\":\"a.b\",\"cost\":0,\"time\":\"2026-11-21T10:00:00Z\",`).Replace(out)
		mended += strings.SplitAfter(mended, "\n")[0] // and the first one again
		summary, stderr = in.run(t, 1, mended, "dead-letters", "--direct", "--send", "-")
		if !strings.HasPrefix(summary, "3 events of 3 records sent, 2 lines refused, 1 repeat skipped") || !strings.Contains(stderr, "line 6 repeats the record of line 1") {
			t.Errorf("what was mended: %s%s", summary, stderr)
		}
		if diff := cmp.Diff([]string{"3 - 3 1", "42 - <2> 1", "6 2026-11-21T10:00:00Z 6 0"}, in.events(t)); diff != "" {
			t.Errorf("the events (- expected, + got)\n%s", diff)
		}
		whole := `{"value":"[{\"uid\":\"7\",\"api\":\"a.b\",\"time\":1},{\"api\":\"a.b\"}]"}` + "\n"
		summary, _ = in.run(t, 0, whole, "dead-letters", "--now", "--json", "--direct", "--send", "-")
		if summary != `{"records":1,"events":2,"refused":0,"repeats":0,"dropped":0}`+"\n" || !slices.Equal(in.events(t)[:2], []string{" -  1", "3 - 3 1"}) || in.events(t)[4] != "7 -  1" {
			t.Errorf("an array without index: %s, %q", summary, in.events(t))
		}
	})
}

// A CloudEvent whose attributes stood in the record's headers is sent again with them: as it was, or mended.
func TestDeadCloudEventsAreSentAgain(t *testing.T) {
	own := func(name, value string) kafka.Header {
		return kafka.Header{Key: "header:" + name, Value: []byte(value)}
	}
	cloud := []kafka.Header{index("-1"), own("ce_specversion", "1.0"), own("ce_id", "7"), own("ce_source", "/shop"), own("ce_subject", "u\xff"), own("tg-s", "\x00\xff"), own("ce_type", "a.b")}
	inspect(t, func(t *testing.T, in *installation) {
		in.write(t, ".dead-letters",
			letter(11, time.Hour, "cost", `{"cost":"2"}`, cloud...),
			letter(12, time.Hour, "no-api", `{"cost":3}`, cloud[:6]...),
			letter(13, time.Hour, "cost", `{"cost":"2"}`, append(slices.Clone(cloud), kafka.Header{Key: "headers-cut", Value: []byte("2")})...))
		out, _ := in.run(t, 0, "", "dead-letters", "--json")
		if !strings.Contains(out, `{"key":"ce_id","value":"7"}`) || !strings.Contains(out, `{"key":"tg-s","value_base64":"AP8="}`) || !strings.Contains(out, `"headers_cut":2`) {
			t.Fatalf("dead-letters --json\n%s", out)
		}
		mended := strings.NewReplacer(`{\"cost\":\"2\"}`, `{\"cost\":2}`, `{\"cost\":3}`, `{\"cost\":3,\"api\":\"a.b\"}`).Replace(out)
		summary, stderr := in.run(t, 1, mended, "dead-letters", "--direct", "--send", "-")
		if !strings.HasPrefix(summary, "2 events of 2 records sent, 1 line refused") || !strings.Contains(stderr, "2 headers of the record missing") {
			t.Errorf("%s%s", summary, stderr)
		}
		if diff := cmp.Diff([]string{"u\uFFFD - /shop/7 2", "u\uFFFD - /shop/7 3"}, in.events(t)); diff != "" {
			t.Errorf("the events (- expected, + got)\n%s", diff)
		}
	})
}

// events are those in the event topic, by uid; each must be where murmur2 of its uid is.
func (in *installation) events(t *testing.T) (list []string) {
	t.Helper()
	log, err := kafkalog.OpenMerge(t.Context(), kafkalog.Config{Brokers: in.brokers}, in.prefix+".events", time.Time{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var d event.Decoder
	for {
		partition, rec, err := log.Next(t.Context())
		if errors.Is(err, io.EOF) {
			slices.Sort(list)
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := d.Decode(rec.Value, nil, rec.Key, nil)
		if err != nil {
			t.Fatalf("%s: %v", rec.Value, err)
		}
		for _, e := range decoded {
			if want := event.Partition([]byte(e.UID), partitions); e.UID != "" && want != partition {
				t.Errorf("uid %s is in partition %d, want %d", e.UID, partition, want)
			}
			at := "-"
			if e.Time != event.NoTime {
				at = e.Time.String()
			}
			list = append(list, fmt.Sprintf("%s %s %s %s", e.UID, at, e.ID, e.Cost))
		}
	}
}
