package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit/internal/script"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/internal/failure"
)

// strict says that rules are strict.
func strict(p *Publisher, version uint64) { p.Use(version, []byte("rules"), []event.Micros{hold}) }

// reaches waits until a partition is applied to the topic's end.
func (r *rig) reaches(partition int32) {
	r.t.Helper()
	testrun.Eventually(r.t, "all is applied", func() bool {
		reached := int64(-1)
		r.look(int(partition)%len(r.shards), func(m *memory) {
			if p := m.Partitions[partition]; p != nil {
				reached = p.Reached
			}
		})
		r.mu.Lock()
		defer r.mu.Unlock()
		return reached == r.ends[partition]
	})
}

// grants waits until the shard may grant, and a permit is granted.
func (r *rig) grants(partition int32, key, id string) {
	r.t.Helper()
	var a protocol.Answer
	testrun.Eventually(r.t, "permit "+id+" is granted", func() bool {
		a = r.admit(partition, key, id)
		return a.Status == protocol.Granted
	})
}

func TestWhatOwnersSayReachesTheShard(t *testing.T) {
	r := newRig(t, 1, 1)
	r.write(0, nil, level("uid=1", 1, r.now, 3), nil, version(7)) // before the takeover
	p, _ := r.start(nil)
	o := r.own(p, 0, nil)
	strict(p, 7)
	testrun.Eventually(t, "it may grant", func() bool { s := p.Stats().Partitions[0]; return s.Grants && s.DoubtSince == 0 })
	r.grants(0, "uid=1", "a")
	o.put(level("uid=1", 2, r.now, 10, "a"), version(8))
	r.reaches(0)
	r.look(0, func(m *memory) {
		k, part := m.Keys["uid=1"], m.Partitions[0]
		if k == nil || k.Level.Seq != 2 || len(k.Permits) != 0 || part.Version != 8 {
			t.Errorf("the key is %+v, the partition %+v", k, part)
		}
	})
	if a := r.admit(0, "uid=1", "b"); a.Status != protocol.Denied {
		t.Errorf("above the limit: %+v", a)
	}
	if s := p.Stats(); s.Failing || s.LastError != nil || s.Partitions[0].Applies == 0 || s.Partitions[0].Refused != 0 {
		t.Errorf("%+v", s)
	}
}

// TestRulesThatAreNotStrictAreSaid: strict ones may have been there before, when no aggregator was, and
// services that start must be able to tell that none is from a Redis that lost its memory.
func TestRulesThatAreNotStrictAreSaid(t *testing.T) {
	r := newRig(t, 1, 1)
	p, _ := r.start(nil)
	r.own(p, 0, nil)
	text := func() (string, bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		text, ok := r.texts[3]
		return text, ok
	}
	p.Use(3, nil, nil)
	testrun.Eventually(t, "it is said", func() bool { got, ok := text(); return ok && got == "" })
	r.mu.Lock()
	r.texts = nil // Redis lost its memory
	r.mu.Unlock()
	testrun.Eventually(t, "it is said again", func() bool { _, ok := text(); return ok })
	if s := p.Stats(); s.Partitions[0].Strict || s.Applies > 0 {
		t.Errorf("%+v", s)
	}
}

// TestWithoutStrictRulesNoShardIsCalled; then they come, and go.
func TestWithoutStrictRulesNoShardIsCalled(t *testing.T) {
	r := newRig(t, 2, 2)
	p, _ := r.start(func(c *Config) { c.Partitions = 2 })
	o := r.own(p, 0, nil)
	p.Use(1, []byte("none is strict"), nil)
	o.put(nil, level("uid=1", 1, r.now, 1), nil)
	other := r.own(p, 1, nil)
	if s := p.Stats(); len(s.Partitions) != 2 || s.Partitions[0].Strict {
		t.Errorf("%+v", s)
	}
	strict(p, 2)
	o.put(version(2))
	other.put(version(2))
	r.reaches(0)
	r.reaches(1)
	r.mu.Lock()
	first := r.shards[0].applied[0]
	r.mu.Unlock()
	if first.Start != 0 {
		t.Errorf("the first batch is %+v: Redis was called before", first)
	}
	r.grants(0, "uid=1", "a")

	p.Use(3, []byte("none any more"), nil)
	o.put(version(3))
	other.put(version(3))
	r.reaches(0) // enforcers with rules 2 must hear of it
	r.reaches(1)
	testrun.Eventually(t, "it ends", func() bool { s := p.Stats().Partitions; return !s[0].Strict && !s[1].Strict })
	testrun.Eventually(t, "the text is in Redis", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.puts[len(r.puts)-1] == 3 && slices.Contains(r.puts, 2)
	})
	o.put(level("uid=1", 2, r.now, 2))
	r.look(0, func(m *memory) {
		if m.Partitions[0].Version != 3 || m.Keys["uid=1"].Level.Seq != 1 {
			t.Errorf("%+v", m.Partitions[0])
		}
	})
}

// TestStrictRulesThatNobodyEnds: an owner that never says the version does not keep the publisher
// calling.
func TestStrictRulesThatNobodyEnds(t *testing.T) {
	r := newRig(t, 1, 1)
	p, _ := r.start(nil)
	o := r.own(p, 0, nil)
	strict(p, 2)
	o.put(version(2))
	r.reaches(0)
	p.Use(3, nil, nil)
	r.tick(2 * event.Minute)
	testrun.Eventually(t, "it ends", func() bool { return !p.Stats().Partitions[0].Strict })
}

func TestOffersThatDoNotFitAreReadFromTheTopic(t *testing.T) {
	r := newRig(t, 1, 1)
	p, _ := r.start(func(c *Config) { c.Buffer, c.BatchSize = 1000, 7 })
	o := r.own(p, 0, nil)
	strict(p, 1)
	for i := range 200 {
		o.put(level(fmt.Sprint("uid=", i%10), int64(i), r.now, 1, fmt.Sprint(i)), nil, level(fmt.Sprint("uid=", i), int64(i), r.now, 1))
	}
	r.reaches(0)
	r.look(0, func(m *memory) {
		if len(m.Keys) != 200 || m.Keys["uid=3"].Level.Seq != 193 {
			t.Errorf("%d keys, %+v", len(m.Keys), m.Keys["uid=3"].Level)
		}
	})
	testrun.Eventually(t, "nothing is left", func() bool { return p.Stats().Partitions[0].Lag == 0 })
}

// TestWhatWasNotOffered is read when the owner says that it is there.
func TestWhatWasNotOffered(t *testing.T) {
	r := newRig(t, 1, 1)
	p, _ := r.start(nil)
	r.own(p, 0, nil)
	strict(p, 1)
	r.write(0, level("uid=1", 1, r.now, 1))
	r.mu.Lock()
	r.input[0] = 1 // so that it is asked
	r.mu.Unlock()
	r.reaches(0)
}

// TestAGapEndsPermits: records that compaction or retention removed may have settled some.
func TestAGapEndsPermits(t *testing.T) {
	r := newRig(t, 1, 1)
	p, stop := r.start(nil)
	o := r.own(p, 0, nil)
	strict(p, 1)
	r.grants(0, "uid=1", "a")
	stop()
	life := ""
	r.look(0, func(m *memory) { life = m.Partitions[0].Life })
	_, end, _ := r.write(0, level("uid=1", 1, r.now, 1, "a"), level("uid=2", 1, r.now, 1), version(3))
	req := kmsg.NewPtrDeleteRecordsRequest()
	topic := kmsg.NewDeleteRecordsRequestTopic()
	topic.Topic = topicName
	partition := kmsg.NewDeleteRecordsRequestTopicPartition()
	partition.Offset = end - 1
	topic.Partitions = append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)
	if _, err := req.RequestWith(t.Context(), r.client); err != nil {
		t.Fatal(err)
	}
	next, _ := r.start(nil)
	strict(next, 1)
	r.own(next, 0, o.last())
	r.reaches(0)
	r.look(0, func(m *memory) {
		part := m.Partitions[0]
		if part.Life == life || part.Until != 0 || part.Version != 3 || m.Keys["uid=1"] != nil && len(m.Keys["uid=1"].Permits) > 0 {
			t.Errorf("after a gap: %+v, %+v", part, m.Keys["uid=1"])
		}
	})
}

func TestRedisIsAwayForAWhile(t *testing.T) {
	log := &testrun.Output{}
	r := newRig(t, 1, 1)
	r.fails = func(int) error { return errors.New("connection refused") }
	p, _ := r.start(func(c *Config) { c.Logger = log.Logger() })
	o := r.own(p, 0, nil)
	strict(p, 1)
	o.put(level("uid=1", 1, r.now, 1), version(1))
	testrun.Eventually(t, "it is reported", func() bool { s := p.Stats(); return s.Failing && s.Errors[failure.Away] > 2 })
	if s := p.Stats(); s.Partitions[0].Grants || s.Partitions[0].DoubtSince == 0 {
		t.Errorf("%+v", s.Partitions[0])
	}
	r.mu.Lock()
	r.fails = nil
	r.mu.Unlock()
	r.reaches(0)
	testrun.Eventually(t, "it works", func() bool { return !p.Stats().Failing })
	if log.Count("writing strict limits to Redis is interrupted") != 1 {
		t.Errorf("the log: %s", log)
	}
}

// TestARedisThatCannotBeUsedIsToldOnce with what to do.
func TestARedisThatCannotBeUsedIsToldOnce(t *testing.T) {
	for want, err := range map[string]error{
		"upgrade Redis":              fmt.Errorf("load: %w, not \"6.2.1\"", script.ErrTooOld),
		"the address of the primary": redisError("READONLY You can't write against a read only replica."),
	} {
		log := &testrun.Output{}
		r := newRig(t, 1, 1)
		r.fails = func(int) error { return err }
		p, _ := r.start(func(c *Config) { c.Logger = log.Logger() })
		r.own(p, 0, nil)
		strict(p, 1)
		testrun.Eventually(t, "it was tried again", func() bool { s := p.Stats(); return s.Errors[failure.Old]+s.Errors[failure.Replica] > 4 })
		if log.Count(want) != 1 || log.Count("level=ERROR") != 1 {
			t.Errorf("the log: %s", log)
		}
	}
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

var _ redis.Error = redisError("")

// TestLostAnswers: Redis has applied a batch, and nobody knows.
func TestLostAnswers(t *testing.T) {
	r := newRig(t, 1, 1)
	r.mutes = func(call int) error {
		if call%3 != 0 {
			return errors.New("i/o timeout")
		}
		return nil
	}
	p, _ := r.start(func(c *Config) { c.BatchSize = 2 })
	o := r.own(p, 0, nil)
	strict(p, 1)
	for i := range 10 {
		o.put(level(fmt.Sprint("uid=", i), 1, r.now, 1, fmt.Sprint(i)))
	}
	r.reaches(0)
	r.look(0, func(m *memory) {
		if len(m.Keys) != 10 {
			t.Errorf("%d keys", len(m.Keys))
		}
	})
}

func TestMalformedRecordsAreSkipped(t *testing.T) {
	log := &testrun.Output{}
	r := newRig(t, 1, 1)
	r.write(0, &protocol.Record{Gone: "uid=1"})
	bad := r.client
	rec := kgoRecord("\x00level|uid=2", "{")
	if err := bad.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
		t.Fatal(err)
	}
	r.write(0, version(4))
	p, _ := r.start(func(c *Config) { c.Logger = log.Logger() })
	r.own(p, 0, nil)
	strict(p, 4)
	r.reaches(0)
	if !log.Has("skipping a malformed record") || !log.Has("offset=1") {
		t.Errorf("the log: %s", log)
	}
}

func TestConfigReportsAllErrors(t *testing.T) {
	_, err := New(Config{Shards: 3, Partitions: 2})
	for _, want := range []string{"Redis is required", "Ends is required", "Kafka is required", "Shards is 3, want 1 to 2"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %q doesn't say %q", err, want)
		}
	}
}

// TestAnOwnerThatLeavesIsNoFailure: the next one is asked. Only what it could not answer is told.
func TestAnOwnerThatLeavesIsNoFailure(t *testing.T) {
	r := newRig(t, 1, 1)
	p, err := New(Config{Redis: r, Ends: r, Kafka: r.addrs, Partitions: 1, Shards: 1, Heartbeat: beat, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	m := &marks{w: &worker{p: p}, done: make(chan func(), errands)}
	for _, c := range []struct {
		err    error
		failed bool
	}{
		{fmt.Errorf("ask for its progress: %w", protocol.ErrReleased), false},
		{errors.New("it cannot write"), true},
		{nil, false},
	} {
		m.begin(t.Context(), &m.asking, func(context.Context) (func(), error) { return func() {}, c.err })
		m.running.Wait()
		m.take()
		if got, _, _ := p.owners.State(); got != c.failed || m.asking.busy {
			t.Errorf("%v: failing %t, busy %t", c.err, got, m.asking.busy)
		}
	}
}
