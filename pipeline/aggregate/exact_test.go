package aggregate

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// chance prints its seed; TALLYGATE_TEST_SEED sets it, to repeat a failure.
func chance(t *testing.T) *rand.Rand { return rand.New(rand.NewPCG(testrun.Seed(t), 7)) }

const byIPAndUID = `
  rules:
    - name: per-year
      match: {api: "*"}
      limit: 1000
      per: year
      window: calendar
      then: {block: until-reset}
    - name: by-ip
      key: ip
      match: {api: "*"}
      limit: 50
      per: year
      window: calendar
      then: {block: until-reset}
`

func (r *rig) countIP(ip, rule string, ms ...*member) event.Decimal {
	for _, m := range ms {
		list, err := m.Explain([]event.Dim{{Name: "ip", Value: ip}}, "", now())
		if err != nil {
			continue
		}
		for _, e := range list {
			if e.Rule == rule {
				return e.Count
			}
		}
	}
	return -1
}

// Events whose producer chose its own partitions, and rules by ip, are counted once by the
// partition that owns the key, even if the owner is stopped in between.
func TestForwardedEventsCountOnce(t *testing.T) {
	everyKafka(t, func(t *testing.T, r *rig) {
		rng := chance(t)
		set := compile(t, byIPAndUID)
		m := r.begin(set)
		perUID, perIP := map[string]int{}, map[string]int{}
		for round := range 4 {
			var msgs []*sarama.ProducerMessage
			for i := range 500 {
				e := hit(fmt.Sprintf("u%d", rng.IntN(100)), "a.b")
				e.ID = fmt.Sprintf("%d-%d", round, i)
				e.IP = ipOf(rng.IntN(20))
				perUID[e.UID]++
				perIP[e.IP.String()]++
				msgs = append(msgs, &sarama.ProducerMessage{Topic: r.names.Events, Partition: rng.Int32N(rigPartitions),
					Value: sarama.ByteEncoder(event.AppendJSON(nil, e))})
			}
			r.sendAll(msgs)
			if round%2 == 0 { // stopped with forwards in flight
				m.end(t)
				m = r.begin(set)
			}
		}
		eventually(t, "all is counted once", func() bool {
			for uid, n := range perUID {
				if r.count(uid, "per-year", m) != event.Decimal(n)*event.One {
					return false
				}
			}
			for ip, n := range perIP {
				if r.countIP(ip, "by-ip", m) != event.Decimal(n)*event.One {
					return false
				}
			}
			return true
		})
		eventually(t, "every ip has its verdict", func() bool {
			got := map[string]bool{}
			for _, v := range r.verdicts() {
				if v.Rule == "by-ip" {
					got[v.KeyText()] = true
				}
			}
			want := 0
			for _, n := range perIP {
				if n >= 50 {
					want++
				}
			}
			return len(got) == want
		})
	})
}

// A partition that is killed without a last checkpoint is recovered from what is durable, and its
// events are replayed: nothing is lost or doubled.
func TestKilledPartitions(t *testing.T) {
	everyKafka(t, func(t *testing.T, r *rig) {
		rng := chance(t)
		set := compile(t, yearly)
		m := r.begin(set)
		want := map[string]int{}
		for range 5 {
			var events []*event.Event
			for range 2000 {
				uid := fmt.Sprintf("u%d", rng.IntN(300))
				want[uid]++
				events = append(events, hit(uid, "a.b"))
			}
			r.emit(events...)
			for _, p := range m.owned() {
				if rng.IntN(2) == 0 {
					go p.Fail(fmt.Errorf("killed by the test"))
				}
			}
		}
		eventually(t, "all is counted once", func() bool {
			for uid, n := range want {
				if r.count(uid, "per-year", m) != event.Decimal(n)*event.One {
					return false
				}
			}
			return true
		})
		for uid, n := range want {
			if got := r.count(uid, "per-year", m); got != event.Decimal(n)*event.One {
				t.Errorf("%s: %v, want %d", uid, got, n)
			}
		}
		blocked := map[string]int{}
		eventually(t, "the verdicts are out", func() bool {
			clear(blocked)
			for _, v := range r.verdicts() {
				blocked[v.Key[0].Value]++
				if v.Count != 5*event.One {
					t.Fatalf("verdict %+v", v)
				}
			}
			return len(blocked) == len(want)
		})
	})
}

func TestRepeatsOfAnEmittersRecordsAreDropped(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		set := compile(t, yearly)
		m := r.begin(set)
		record := func(seq uint64) *sarama.ProducerMessage {
			return &sarama.ProducerMessage{Topic: r.names.Events, Partition: event.Partition([]byte("u1"), rigPartitions),
				Value: sarama.StringEncoder(`{"uid":"u1","api":"a.b"}`), Headers: []sarama.RecordHeader{
					{Key: []byte(event.HeaderInstance), Value: []byte("instance")},
					{Key: []byte(event.HeaderSequence), Value: event.AppendSequence(nil, seq)},
				}}
		}
		r.sendAll([]*sarama.ProducerMessage{record(1), record(2), record(2), record(1), record(2), record(3)})
		eventually(t, "three are counted", func() bool { return r.count("u1", "per-year", m) == 3*event.One })
		m.end(t)
		m = r.start(set) // event ids survive the owner
		r.ready(m)
		r.sendAll([]*sarama.ProducerMessage{record(3), record(4), record(2)})
		eventually(t, "a fourth is counted", func() bool { return r.count("u1", "per-year", m) == 4*event.One })
		r.emit(hit("u1", "a.b"))
		eventually(t, "nothing else was", func() bool { return r.count("u1", "per-year", m) == 5*event.One })
	})
}

func TestDeadLettersSayWhyAndWhere(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		m := r.begin(compile(t, yearly))
		bad := []string{"", "{", "nonsense", `{"api":""}`, `{"uid":"u1","api":"x","cost":-1}`, `[{"api":"x","uid":"u1"},{"uid":7}]`,
			`{"uid":"u1","api":"` + strings.Repeat("x", 300) + `"}`, strings.Repeat("[", 100_000)}
		var msgs []*sarama.ProducerMessage
		for _, b := range bad {
			msgs = append(msgs, &sarama.ProducerMessage{Topic: r.names.Events, Partition: 1, Value: sarama.StringEncoder(b)})
		}
		// A null value.
		msgs = append(msgs, &sarama.ProducerMessage{Topic: r.names.Events, Partition: 1})
		r.sendAll(msgs)
		r.emit(hit("u1", "x.y"), hit("__offset", "x.y"))
		eventually(t, "the good ones are counted", func() bool {
			return r.count("u1", "per-year", m) == 2*event.One && r.count("__offset", "per-year", m) == event.One
		})
		var letters []*sarama.ConsumerMessage
		eventually(t, "the bad ones are dead letters", func() bool {
			letters = nil
			for p := range int32(rigPartitions) {
				letters = append(letters, r.records(r.names.DeadLetters, p)...)
			}
			return len(letters) == len(msgs)
		})
		for _, l := range letters {
			i, err := strconv.Atoi(header(l, "offset"))
			if err != nil || header(l, "reason") == "" || header(l, "topic") != r.names.Events || header(l, "partition") != "1" {
				t.Fatalf("headers of %.40q: %v", l.Value, l.Headers)
			}
			if want, _ := encoded(msgs[i].Value); !bytes.Equal(l.Value, want) {
				t.Errorf("letter %d is %.60q, want %.60q", i, l.Value, want)
			}
		}
	})
}

func encoded(e sarama.Encoder) ([]byte, error) {
	if e == nil {
		return nil, nil
	}
	return e.Encode()
}

// Every key's state with its verdict is in the changelog before the verdict is in its topic,
// and the verdict's seq is the state record's offset.
func TestSeqIsTheOffsetOfTheStateThatMadeTheVerdictDurable(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		r.begin(compile(t, yearly))
		for range 5 {
			r.emit(hit("u1", "x.y"), hit("u2", "x.y"))
		}
		eventually(t, "both verdicts are out", func() bool { return len(r.verdicts()) == 2 })
		for p := range int32(rigPartitions) {
			states := map[int64]*sarama.ConsumerMessage{}
			for _, s := range r.records(r.names.Table, p) {
				states[s.Offset] = s
			}
			for _, rec := range r.records(r.names.Verdicts, p) {
				if fenced.IsOwnerRecord(rec.Key) {
					continue
				}
				v, err := verdict.Parse(rec.Value)
				if err != nil {
					t.Fatal(err)
				}
				s := states[v.Seq]
				if s == nil || string(s.Key) != v.KeyText() {
					t.Fatalf("no state of %s at offset %d", v.KeyText(), v.Seq)
				}
				unpublished, _, err := shard.ParseState(s.Value)
				if err != nil || unpublished != 1 {
					t.Fatalf("the state at %d has %d unpublished verdicts, %v", v.Seq, unpublished, err)
				}
			}
		}
	})
}

func TestExplainIsAnsweredByWhoeverIsAsked(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		set := compile(t, yearly)
		ms := r.two(set)
		for _, uid := range uids(20) {
			r.emit(hit(uid, "x.y"))
		}
		for _, uid := range uids(20) {
			for _, m := range ms {
				eventually(t, "explain tells the count of "+uid, func() bool {
					w := httptest.NewRecorder()
					m.ServeExplain(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/explain?uid="+uid, nil))
					return w.Code == http.StatusOK && strings.Contains(oneLine(w.Body.String()), `"count":1,`)
				})
			}
		}
		for _, bad := range []string{"", "?user=1", "?uid=", "?uid=1&uid=2", "?attrs.=1"} {
			w := httptest.NewRecorder()
			ms[0].ServeExplain(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/explain"+bad, nil))
			if w.Code != http.StatusBadRequest {
				t.Errorf("%q answers %d", bad, w.Code)
			}
		}
	})
}

const shortLived = `
  max_lateness: 1s
  recent_ids: {count: 8, for: 1s}
  rules:
    - name: brief
      match: {api: "*"}
      limit: 5
      per: 1s
      window: tumbling
      then: {block: 1s}
`

func TestKeysThatFellSilentLeave(t *testing.T) {
	inMemoryShows(t, "sweeps go by the partition's greatest broker time", func(t *testing.T, r *rig) {
		set := compile(t, shortLived)
		m := r.begin(set)
		var events []*event.Event
		for _, uid := range uids(200) {
			events = append(events, hit(uid, "x.y"))
		}
		r.emit(events...) // at once: the first must not expire before the last has come
		keys := func() (n int) {
			for _, p := range m.owned() {
				p.View(func(s *shard.Shard, _ *owner.Rules) { n += s.Keys() })
			}
			return n
		}
		eventually(t, "the keys are there", func() bool { return keys() == 200 })
		eventually(t, "the silent keys have left", func() bool {
			for p := range int32(rigPartitions) { // others' traffic advances the broker's time
				r.sendAll([]*sarama.ProducerMessage{{Topic: r.names.Events, Partition: p, Value: sarama.StringEncoder(`{"api":"anonymous"}`)}})
			}
			return keys() == 0
		})
		m.end(t)
		m = r.begin(set)
		if n := keys(); n != 0 {
			t.Fatalf("%d keys came back after a restart", n)
		}
	})
}

// recreate deletes a topic and makes one of the same name.
func (r *rig) recreate(topic string, settings map[string]*string) {
	r.t.Helper()
	admin, err := sarama.NewClusterAdminFromClient(r.client)
	if err != nil {
		r.t.Fatal(err)
	}
	var ends [rigPartitions]int64
	for p := range ends {
		if ends[p], err = r.client.GetOffset(topic, int32(p), sarama.OffsetNewest); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := admin.DeleteTopic(topic); err != nil {
		r.t.Fatal(err)
	}
	detail := &sarama.TopicDetail{NumPartitions: rigPartitions, ReplicationFactor: 1, ConfigEntries: settings}
	eventually(r.t, "the topic is there again", func() bool { return admin.CreateTopic(topic, detail, false) == nil })
	eventually(r.t, "its leaders are known, and have the new one", func() bool { // for a moment they have the old one
		for p, before := range ends {
			if end, err := r.client.GetOffset(topic, int32(p), sarama.OffsetNewest); err != nil || end >= max(before, 1) {
				return false
			}
		}
		return r.client.RefreshMetadata(topic) == nil
	})
}

// A recreated topic has other records at the same offsets: nothing may be skipped silently.
func TestRecreatedTopicIsRefused(t *testing.T) {
	everyKafka(t, func(t *testing.T, r *rig) {
		set := compile(t, yearly)
		m := r.begin(set)
		r.emit(hit("u1", "x.y"), hit("u1", "x.y"), hit("u1", "x.y"))
		eventually(t, "three are counted", func() bool { return r.count("u1", "per-year", m) == 3*event.One })
		m.end(t)
		r.recreate(r.names.Events, map[string]*string{"message.timestamp.type": ptr("LogAppendTime"), "max.message.bytes": ptr("2097152")})
		r.refuses(set, r.names.Events)
		m = r.begin(set, func(c *Config) { c.AcceptNewTopic = true })
		r.emit(hit("u1", "x.y"))
		eventually(t, "the count goes on", func() bool { return r.count("u1", "per-year", m) == 4*event.One })
	})
}

// Without the changelog, verdicts would start over with numbers below those in Redis, which would
// ignore them.
func TestRecreatedChangelogIsRefused(t *testing.T) {
	onKafka(t, func(t *testing.T, r *rig) {
		set := compile(t, yearly)
		m := r.begin(set)
		r.emit(hit("u1", "x.y"))
		eventually(t, "one is counted", func() bool { return r.count("u1", "per-year", m) == event.One })
		m.end(t)
		r.recreate(r.names.Table, map[string]*string{"cleanup.policy": ptr("compact"), "max.message.bytes": ptr("2097152")})
		r.refuses(set, r.names.Table)
		m = r.begin(set, func(c *Config) { c.AcceptNewTopic = true })
		eventually(t, "the events that are there are counted anew", func() bool { return r.count("u1", "per-year", m) == event.One })
	})
}

// refuses starts a member that must end, and must name the topic and the fix.
func (r *rig) refuses(set *rules.Set, topic string) {
	r.t.Helper()
	m := r.start(set)
	eventually(r.t, "the aggregator refuses", func() bool { return m.fatal() != nil })
	m.end(r.t)
	if err := m.fatal(); !strings.Contains(err.Error(), "--accept-new-topic") || !strings.Contains(err.Error(), topic) {
		r.t.Fatalf("it says: %v", err)
	}
}

func ptr(s string) *string { return &s }

func TestConfigSaysAllThatIsWrong(t *testing.T) {
	_, err := New(Config{Partitions: -1, BrokerTime: "never", SessionTimeout: 1, CheckpointEvery: 1})
	for _, want := range []string{"brokers", "rules", "partitions", "broker time", "session timeout", "checkpoint"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not speak of %s", err, want)
		}
	}
}

func TestNobodyToReach(t *testing.T) {
	a, err := New(Config{Brokers: []string{"127.0.0.1:1"}, Rules: compile(t, yearly)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := a.Run(ctx); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Fatalf("it says: %v", err)
	}
}
