package aggregate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/verdict"
)

// weekFile is a version of a file whose one rule blocks for a week, changed so many minutes after
// ruleDay.
func weekFile(limit, minutes int) RuleFile {
	f := ruleFile(limit, minutes)
	f.Source = fmt.Appendf(nil, `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: v%d}
spec:
  rules:
    - {name: weekly, match: {api: "*"}, limit: %d, per: year, window: calendar, then: {block: 7d}}
`, limit, limit)
	return f
}

// blockedAndCleared counts the keys by their last verdict in the topic.
func (r *rig) blockedAndCleared() (blocked, cleared int) {
	last := map[string]verdict.State{}
	for _, v := range r.verdicts() {
		last[v.KeyText()] = v.State
	}
	for _, s := range last {
		if s == verdict.Block {
			blocked++
		} else {
			cleared++
		}
	}
	return blocked, cleared
}

// emitEach emits n events for each user, a hundred events per record.
func (r *rig) emitEach(users []string, n int) {
	r.t.Helper()
	byPartition := map[int32][]string{}
	for range n {
		for _, uid := range users {
			id := event.Partition([]byte(uid), rigPartitions)
			byPartition[id] = append(byPartition[id], string(event.AppendJSON(nil, hit(uid, "a"))))
		}
	}
	var msgs []*sarama.ProducerMessage
	for id, list := range byPartition {
		for len(list) > 0 {
			n := min(100, len(list))
			msgs = append(msgs, &sarama.ProducerMessage{Topic: r.names.Events, Partition: id, Value: sarama.StringEncoder("[" + strings.Join(list[:n], ",") + "]")})
			list = list[n:]
		}
	}
	r.sendAll(msgs)
}

func (r *rig) run(f RuleFile) *member {
	r.t.Helper()
	set, file := withRules(r.t, f)
	m := r.begin(set, file)
	return m
}

// A file that changed while no aggregator ran is judged like one that changes under a running one.
// A penalty that the new limit would not have issued ends, and one that it would have is issued.
func TestLimitsChangedWhileStoppedAreJudged(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		m := r.run(weekFile(1, 0))
		r.emitEach(uids(50), 2)
		eventually(t, "50 users are over a limit of 1", func() bool { blocked, _ := r.blockedAndCleared(); return blocked == 50 })
		m.end(t)
		m = r.run(weekFile(100, 1))
		eventually(t, "a limit of 100 clears all of them", func() bool { _, cleared := r.blockedAndCleared(); return cleared == 50 })
		m.end(t)
		m = r.run(weekFile(1, 2))
		eventually(t, "a limit of 1 blocks all of them", func() bool { blocked, _ := r.blockedAndCleared(); return blocked == 50 })
		m.end(t)
		before := len(r.verdicts())
		m = r.run(weekFile(1, 2)) // unchanged: nothing to judge
		r.emit(hit("other", "a"))
		eventually(t, "it counts", func() bool { return r.count("other", "weekly", m) == event.One })
		m.end(t)
		if after := len(r.verdicts()); after != before {
			t.Errorf("a restart without a change published %d verdicts", after-before)
		}
	})
}

// Above 64 a sliding window keeps panes instead of times, under another name. The new limit is
// still judged against the counts that it continues from, under a running aggregator and after a
// restart.
func TestLimitsThatKeepSomethingElseAreJudged(t *testing.T) {
	daily := func(limit, minutes int) RuleFile {
		f := weekFile(limit, minutes)
		f.Source = bytes.Replace(f.Source, []byte("per: year, window: calendar"), []byte("per: 1d"), 1)
		return f
	}
	inMemory(t, func(t *testing.T, r *rig) {
		m := r.run(daily(1, 0))
		r.emitEach(uids(50), 2)
		blocked := func() bool { blocked, _ := r.blockedAndCleared(); return blocked == 50 }
		cleared := func() bool { _, cleared := r.blockedAndCleared(); return cleared == 50 }
		eventually(t, "50 users are over a limit of 1", blocked)
		reload := func(limit, minutes int) {
			r.reload(m, daily(limit, minutes))
		}
		reload(100, 1)
		eventually(t, "a limit of 100 clears all of them", cleared)
		reload(1, 2)
		eventually(t, "a limit of 1 blocks all of them", blocked)
		m.end(t)
		m = r.run(daily(100, 3))
		eventually(t, "a limit of 100 clears all of them after a restart", cleared)
	})
}

// A pass that a stop, a takeover or a reload interrupts continues: the checkpoint records that it
// was not complete.
func TestAnInterruptedPassGoesOn(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		users := uids(1200) // more states than wait for a changelog that takes none
		for i := range users {
			users[i] += strings.Repeat("x", 240)
		}
		judged := func(m *member) (some, all bool) {
			all = true
			for _, p := range m.owned() {
				p.View(func(s *shard.Shard, _ *owner.Rules) {
					some, all = some || s.Judge().JudgedParts() > 0, all && s.Judge().AllJudged()
				})
			}
			return some, all
		}
		room := func(records int) {
			for id := range int32(rigPartitions) {
				r.memory.Room(r.names.Table, id, records)
			}
		}
		m := r.run(weekFile(1, 0))
		r.emitEach(users, 2)
		eventually(t, "all users are over a limit of 1", func() bool { blocked, _ := r.blockedAndCleared(); return blocked == len(users) })
		room(10)
		r.reload(m, weekFile(100, 1))
		synctest.Wait()
		if some, all := judged(m); !some || all {
			t.Fatalf("the pass is not under way: %v, %v", some, all)
		}
		m.end(t)
		if _, cleared := r.blockedAndCleared(); cleared == len(users) {
			t.Error("all of them are cleared already")
		}
		room(-1)
		m = r.run(weekFile(100, 1))
		eventually(t, "the pass is through", func() bool { _, all := judged(m); return all })
		eventually(t, "all of them are cleared", func() bool { _, cleared := r.blockedAndCleared(); return cleared == len(users) })

		// A wrong limit is reverted while its pass runs.
		room(10)
		r.reload(m, weekFile(1, 2))
		synctest.Wait()
		if some, all := judged(m); !some || all {
			t.Fatalf("the pass is not under way: %v, %v", some, all)
		}
		r.reload(m, weekFile(100, 3))
		room(-1)
		eventually(t, "all passes are through", func() bool { _, all := judged(m); return all })
		eventually(t, "none stays blocked", func() bool { blocked, _ := r.blockedAndCleared(); return blocked == 0 })
	})
}

// A crash right after a change leaves states that the new rules have changed. The next owner, with
// the old rules, must not treat them as judged by these.
func TestAChangeIsNotedAheadOfItsStates(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		slow := func(c *Config) { c.CheckpointEvery = 100 * time.Hour } // none but the last
		set, file := withRules(t, weekFile(100, 0))
		m := r.begin(set, file)
		r.emitEach(uids(50), 2)
		eventually(t, "they are counted", func() bool { return r.count("u0", "weekly", m) == 2*event.One })
		m.end(t)
		m = r.begin(set, file, slow)
		r.reload(m, weekFile(1, 1))
		eventually(t, "50 users are over a limit of 1", func() bool { blocked, _ := r.blockedAndCleared(); return blocked == 50 })
		r.takeAway() // the owner makes no last checkpoint
		m.end(t)
		m = r.run(weekFile(100, 2))
		eventually(t, "a limit of 100 clears all of them", func() bool { _, cleared := r.blockedAndCleared(); return cleared == 50 })
	})
}

// takeAway makes every owner a replaced one.
func (r *rig) takeAway() {
	r.t.Helper()
	for id := range int32(rigPartitions) {
		owner, err := r.memory.Acquire(r.t.Context(), id, nil)
		for _, topic := range []string{r.names.Table, r.names.Verdicts} {
			if err == nil {
				_, _, err = owner.NewWriter(topic, id).FenceAt(r.t.Context())
			}
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// A checkpoint of the previous version does not tell what was judged. Its keys are judged once.
func TestCheckpointsWithoutWhatWasJudgedAreJudgedOnce(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		m := r.run(weekFile(1, 0))
		r.emitEach(uids(50), 2)
		eventually(t, "50 users are over a limit of 1", func() bool { blocked, _ := r.blockedAndCleared(); return blocked == 50 })
		m.end(t)
		for id := range int32(rigPartitions) {
			var last *sarama.ConsumerMessage
			for _, rec := range r.records(r.names.Table, id) {
				if string(rec.Key) == shard.CheckpointKey {
					last = rec
				}
			}
			if last == nil {
				continue
			}
			var c map[string]json.RawMessage
			if err := json.Unmarshal(last.Value, &c); err != nil || c["judged"] == nil {
				t.Fatalf("%s: %v", last.Value, err)
			}
			delete(c, "judged")
			value, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			r.memory.Append(r.names.Table, id, kafkalog.Record{Key: []byte(shard.CheckpointKey), Value: value})
		}
		r.run(weekFile(100, 1))
		eventually(t, "a limit of 100 clears all of them", func() bool { _, cleared := r.blockedAndCleared(); return cleared == 50 })
	})
}

// Whatever interrupts the passes (several reloads, a rule that is removed and restored, failing
// owners), the verdicts in force at the end are those of the last rules and the counts.
func TestWhatIsInForceIsWhatTheLastRulesSay(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		rnd := chance(t)
		users, minute := uids(600), 0
		next := func(limit int) RuleFile {
			minute++
			f := ruleFile(limit, minute)
			if limit == 0 {
				f.Source = []byte(strings.Split(string(f.Source), "    - {name: moving")[0])
			}
			return f
		}
		m := r.run(next(100))
		for n := range 4 {
			r.emitEach(users[n*len(users)/4:], 1) // 1 to 4 each
		}
		eventually(t, "all are counted", func() bool {
			return r.count(users[0], "steady", m) == event.One && r.count(users[len(users)-1], "steady", m) == 4*event.One
		})
		reload := func(limit int) {
			t.Helper()
			r.reload(m, next(limit))
		}
		for range 12 {
			for id := range int32(rigPartitions) { // a crash loses what has no room
				r.memory.Room(r.names.Table, id, rnd.IntN(400)-200)
			}
			reload([]int{0, 1, 2, 3, 4, 100}[rnd.IntN(6)])
			for range rnd.IntN(60) {
				r.emit(hit("other", "a"))
				if rnd.IntN(3) == 0 { // or what comes next meets the pass at its work
					time.Sleep(time.Millisecond)
				}
			}
			switch rnd.IntN(4) {
			case 0:
				r.crash(m)
			case 1:
				m.end(t)
				m = r.run(next([]int{1, 3}[rnd.IntN(2)]))
			}
		}
		for id := range int32(rigPartitions) {
			r.memory.Room(r.names.Table, id, -1)
		}
		const limit = 2
		// 0 removes the rule, until every pass is through.
		for _, limit := range []int{100, 0, limit} {
			reload(limit)
			eventually(t, "all passes are through", func() bool {
				return !slices.ContainsFunc(m.owned(), func(p *owner.Partition) bool {
					judged := false
					p.View(func(s *shard.Shard, v *owner.Rules) { judged = s.Judge().AllJudged() && v == m.book.Current() })
					return !judged
				})
			})
		}
		eventually(t, "what is published is what the counts say", func() bool {
			last := map[string]verdict.State{}
			for _, v := range r.verdicts() {
				if v.Rule == "moving" {
					last[v.KeyText()] = v.State
				}
			}
			for _, uid := range users {
				over := r.count(uid, "moving", m) >= limit*event.One
				if state, said := last["uid="+uid]; over != (said && state == verdict.Block) {
					t.Logf("%s has counted %v of %d, and %v was published (%v)", uid, r.count(uid, "moving", m), limit, state, said)
					return false
				}
			}
			return true
		})
	})
}
