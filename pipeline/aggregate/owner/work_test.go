package owner_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/verdict"
)

// until returns the end of the user's block, as the partition has it.
func (o *one) until(t *testing.T) (until event.Micros) {
	t.Helper()
	o.View(func(s *shard.Shard, r *owner.Rules) {
		state, err := s.State([]byte("uid=u"))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range r.Set.Explain(state, []byte("uid=u"), event.FromTime(time.Now()), "") {
			if e.Verdict != nil {
				until = e.Verdict.Until
			}
		}
	})
	return until
}

// An end that has moved waits, and is published when its key is quiet, before its owner stops, also where a checkpoint
// has just covered all that was counted, and by the next owner after a crash.
func TestAnEndThatWaitsIsPublished(t *testing.T) {
	for about, then := range map[string]func(g *group, o *one){
		"quiet": func(_ *group, o *one) {
			time.Sleep(2 * time.Second)
			o.close()
		},
		"stop": func(_ *group, o *one) { o.close() },
		"stop behind a checkpoint": func(g *group, o *one) {
			time.Sleep(g.env.CheckpointEvery + time.Millisecond)
			o.close()
		},
		"crash": func(g *group, o *one) {
			successor := g.takeOver()
			g.read(successor) // what no checkpoint covers
			successor.close()
			o.close()
		},
	} {
		t.Run(about, func(t *testing.T) {
			rule := `{name: r, match: {api: "*"}, window: bucket, limit: 60, per: 1h, then: {block: until-reset}}`
			inBubble(t, rule, func(t *testing.T, g *group) {
				g.env.CheckpointEvery = 300 * time.Millisecond
				o := g.takeOver()
				g.emit(150)
				g.read(o)
				want := o.until(t)
				if got := g.verdicts(); len(got) == 0 || got[len(got)-1].Until >= want {
					t.Fatalf("%d verdicts: the block is until %v, and is published until then", len(got), want)
				}
				then(g, o)
				if got := g.verdicts(); got[len(got)-1].Until != want || len(got) > 5 {
					t.Errorf("%d verdicts: the last block is published until %v, and is until %v", len(got), got[len(got)-1].Until, want)
				}
			})
		})
	}
}

// Other rules judge all keys at once, and older ones none.
func TestChangedRulesJudgeAllKeys(t *testing.T) {
	two, many := compile(t, strings.Replace(third, "limit: 3", "limit: 2", 1)), compile(t, strings.Replace(third, "limit: 3", "limit: 99", 1))
	inBubble(t, third, func(t *testing.T, g *group) {
		o := g.takeOver()
		defer o.close()
		g.emit(2)
		g.read(o)
		use := func(v *owner.Rules, states ...verdict.State) {
			t.Helper()
			o.Use(v)
			synctest.Wait()
			var got []verdict.State
			for _, v := range g.verdicts() {
				got = append(got, v.State)
			}
			if len(got) != len(states) || len(got) > 0 && got[len(got)-1] != states[len(states)-1] {
				t.Errorf("published: %v, want %v", got, states)
			}
			o.View(func(s *shard.Shard, _ *owner.Rules) {
				if !s.Judge().AllJudged() {
					t.Error("a pass goes on")
				}
			})
		}
		first := g.env.Rules.Current()
		use(first)
		second := &owner.Rules{Number: 2, Set: two, Matches: g.env.Metrics.MatchesOf(two)}
		use(second, verdict.Block)
		use(first, verdict.Block)
		use(second, verdict.Block)
		use(&owner.Rules{Number: 3, Set: many, Matches: g.env.Metrics.MatchesOf(many)}, verdict.Block, verdict.Clear)
	})
}

// A command is in the audit before it is carried out, and is done when its verdict is in its topic.
func TestACommandIsDoneWhenItsVerdictIsOut(t *testing.T) {
	inBubble(t, third, func(t *testing.T, g *group) {
		o := g.takeOver()
		type answer struct {
			owner.CommandResult
			err error
		}
		give := func(command string) <-chan answer {
			done := make(chan answer, 1)
			go func() {
				rec := &shard.CommandRecord{ID: command, Command: command, Key: "uid=u", For: event.Hour, Reason: "test", By: "one"}
				is, err := o.CarryOut(context.Background(), rec)
				done <- answer{is, err}
			}()
			synctest.Wait()
			return done
		}
		g.log.Room(g.env.Names.Verdicts, 0, 0)
		done := give("block")
		audit := g.log.Records(g.env.Names.Audit, 0, 0)
		if len(done) > 0 || len(audit) == 0 || !strings.Contains(string(audit[0].Value), `"command":"block"`) {
			t.Fatalf("before its verdict is out: %d answers, %d entries in the audit", len(done), len(audit))
		}
		g.log.Room(g.env.Names.Verdicts, 0, -1)
		is := <-done
		got := g.verdicts()
		if is.err != nil || len(is.Verdicts) != 1 || len(got) != 1 || got[0].State != verdict.Block || got[0].Until != is.Verdicts[0].Until {
			t.Errorf("%+v; published: %+v", is, got)
		}
		g.log.Room(g.env.Names.Table, 0, 0)
		done = give("unblock")
		successor := g.takeOver()
		defer successor.close()
		g.log.Room(g.env.Names.Table, 0, -1)
		if is := <-done; is.err == nil || !strings.Contains(is.err.Error(), "changed its owner") {
			t.Errorf("of an owner that was replaced: %+v", is)
		}
		o.close()
	})
}

// What a key has left is published at once, and then once a second.
func TestWhatIsLeftIsPublishedOnceASecond(t *testing.T) {
	inBubble(t, strings.Replace(third, "name: r", "name: r, public: some, quota: true", 1), func(t *testing.T, g *group) {
		o := g.takeOver()
		defer o.close()
		for _, want := range []int{1, 1} {
			g.emit(1)
			g.read(o)
			if got := len(g.verdicts()); got != want {
				t.Errorf("%d are published, want %d", got, want)
			}
			time.Sleep(400 * time.Millisecond)
		}
		time.Sleep(400 * time.Millisecond)
		if got := len(g.verdicts()); got != 2 {
			t.Errorf("after a second, %d are published, want 2", got)
		}
	})
}
