package admit

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/blocklist/publish"
)

const strictOnce = "    - {name: a, match: {api: x}, limit: 1, per: 1h, strict: true}\n"

// TestARedisWithoutRulesSaysNothing: it may have lost its memory just now. Only an aggregator can say
// that no rule is strict.
func TestARedisWithoutRulesSaysNothing(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		starts := func() *Admitter {
			a, err := New(Config{Redis: r.client, Prefix: r.prefix, Poll: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			testrun.Start(t, a.Run)
			return a
		}
		rules := "{" + r.prefix + ":rules}:strict"
		doubts := func(a *Admitter) {
			t.Helper()
			if err := a.book.read(t.Context()); err != nil {
				t.Fatal(err)
			}
			if p := r.admit(a, uid("x", "1")); p.Admitted || !p.InDoubt || a.Idle() || a.Stats().Ready {
				t.Fatalf("%+v", p)
			}
		}
		r.client.HSet(t.Context(), "{"+r.prefix+":0}:verdicts", "\x00beat", 1) // aggregators live
		a := starts()
		doubts(a)
		r.rules(1, strictOnce)
		testrun.Eventually(t, "a permit is asked for", func() bool { return r.admit(a, uid("x", "1")).Admitted })
		if p := r.admit(a, uid("x", "1")); p.Admitted || p.InDoubt {
			t.Errorf("%+v", p)
		}

		r.client.Del(t.Context(), rules)
		doubts(starts())
		if p := r.admit(a, uid("x", "1")); p.Admitted || p.InDoubt {
			t.Errorf("what is known stays: %+v", p)
		}
		if err := r.shards.PutRules(t.Context(), 2, nil); err != nil {
			t.Fatal(err)
		}
		late := starts()
		testrun.Eventually(t, "both know that none is strict", func() bool { return a.Idle() && late.Idle() })
		r.client.Del(t.Context(), rules)
		if err := late.book.read(t.Context()); err != nil || r.admit(late, uid("x", "1")) != &late.free {
			t.Errorf("what is known stays: %v", err)
		}
	})
}

// TestAggregatorsThatKnowNoStrictLimits live, and put no rules.
func TestAggregatorsThatKnowNoStrictLimits(t *testing.T) {
	var s silence
	now := time.Now()
	lives := func(beats int, every time.Duration) (over bool) {
		for range beats {
			now = now.Add(every)
			over = s.over(s.beat+1, now)
		}
		return over
	}
	if s.over(0, now) || s.over(0, now.Add(time.Hour)) {
		t.Error("no aggregator lives")
	}
	if lives(59, time.Second) {
		t.Error("59 seconds are enough")
	}
	if now = now.Add(time.Minute); s.over(s.beat, now) {
		t.Error("the last one has ended")
	}
	if lives(1, time.Second) || lives(60, 11*time.Second) {
		t.Error("it lived a moment now and then")
	}
	if !lives(61, time.Second) {
		t.Error("a minute is not enough")
	}

	r := newRig(t, miniredis.RunT(t).Addr())
	a, err := New(Config{Redis: r.client, Prefix: r.prefix})
	if err != nil {
		t.Fatal(err)
	}
	a.book.silence = s
	r.client.HSet(t.Context(), "{"+r.prefix+":0}:verdicts", "\x00beat", s.beat+1)
	a.book.silence.heard, a.book.silence.since = time.Now(), time.Now().Add(-time.Minute)
	if err := a.book.read(t.Context()); err != nil || !a.Idle() {
		t.Errorf("it is still in doubt: %v", err)
	}
	r.put(1, strictOnce) // they were updated
	if err := a.book.read(t.Context()); err != nil || a.Idle() {
		t.Errorf("rules that came later are not read: %v", err)
	}
}

// TestTheRulesTopicIsCreatedAnew: the same number is another version.
func TestTheRulesTopicIsCreatedAnew(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		before, now := protocol.RulesVersion([16]byte{1}, 7), protocol.RulesVersion([16]byte{2}, 7)
		r.rules(before, strictOnce)
		a := r.admitter(func(c *Config) { c.Poll = time.Hour })
		if p := r.admit(a, uid("x", "1")); !p.Admitted {
			t.Fatalf("%+v", p)
		}
		r.rules(now, "    - {name: b, match: {api: x}, limit: 2, per: 1h, strict: true}\n")
		for i := range 3 {
			if p := r.admit(a, uid("x", "1")); p.Admitted != (i < 2) || p.InDoubt || p.By.Name != "b" {
				t.Errorf("request %d by the other rules: %+v", i, p)
			}
		}
		if err := a.book.read(t.Context()); err != nil || a.Stats().Version != 7 || a.book.current.Load().newest.number != now {
			t.Errorf("the newest version is %+v, %v", a.Stats(), err)
		}
	})
}

// TestTheHeartbeatIsWhereItIsLookedFor: in the blocklist, as its publisher writes it.
func TestTheHeartbeatIsWhereItIsLookedFor(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "tallygate.verdicts"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	r := newRig(t, miniredis.RunT(t).Addr())
	p, err := publish.New(publish.Config{Redis: r.client, Prefix: r.prefix, Kafka: cluster.ListenAddrs(), Partitions: 1, Heartbeat: 20 * time.Millisecond, PublishOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, p.Run)
	beat := func() int64 {
		n, err := r.shards.Beat(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	var first int64
	testrun.Eventually(t, "there is one", func() bool { first = beat(); return first > 0 })
	testrun.Eventually(t, "there is another one", func() bool { return beat() > first })
}

// A mistyped rule name would change nothing, in silence.
func TestOnDoubtOfARuleThatIsNone(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.rules(1, strictOnce)
		var log testrun.Output
		a, err := New(Config{Redis: r.client, Prefix: r.prefix, OnDoubtOf: map[string]OnDoubt{"a": Open, "aa": Open}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // said once
			if err := a.book.read(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if said := log.String(); strings.Count(said, "is not strict") != 1 || !strings.Contains(said, "rule=aa") {
			t.Errorf("the log says %s", said)
		}
	})
}
