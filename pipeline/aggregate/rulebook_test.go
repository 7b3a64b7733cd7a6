package aggregate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
)

// ruleText is a set with a rule that never changes, and one whose limit is the version's.
func ruleText(limit int) string {
	return fmt.Sprintf(`apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: v%d}
spec:
  rules:
    - {name: steady, match: {api: "*"}, limit: 1000000, per: year, window: calendar, then: {block: until-reset}}
    - {name: moving, match: {api: "*"}, limit: %d, per: year, window: calendar, then: {block: until-reset}}
`, limit, limit)
}

// ruleDay lies before the time at which a bubble begins.
var ruleDay = time.Date(1999, 11, 21, 10, 0, 0, 0, time.UTC)

// ruleFile is a version of the file, changed so many minutes after ruleDay.
func ruleFile(limit, minutes int) RuleFile {
	return RuleFile{Name: "rules.yaml", Source: []byte(ruleText(limit)), Modified: ruleDay.Add(time.Duration(minutes) * time.Minute)}
}

func withRules(t *testing.T, f RuleFile) (*rules.Set, func(*Config)) {
	set, err := rules.Compile(f.Name, f.Source)
	if err != nil {
		t.Fatal(err)
	}
	return set, func(c *Config) { c.RuleFile = f }
}

func (m *member) limitOf(t *testing.T, rule string) event.Decimal {
	for _, l := range m.book.Current().Set.Limits {
		if l.Name == rule {
			return l.Limit
		}
	}
	t.Fatalf("no rule %s", rule)
	return 0
}

// A changed file becomes the next version, which every instance runs, at once or within a second.
// Unchanged counters continue.
func TestReload(t *testing.T) {
	inMemoryShows(t, "a valid file is published as the next version to the rules topic, and all run its latest; what is unchanged keeps its counters", func(t *testing.T, r *rig) {
		set, file := withRules(t, ruleFile(5, 0))
		one, two := r.half(0, set, file), r.half(1, set, file)
		r.shared(one, two)
		for range 3 {
			r.emit(hit("u1", "a"), hit("u2", "a"))
		}
		counted := func(uid string) bool { return r.count(uid, "steady", one, two) == 3*event.One }
		eventually(t, "three events are counted", func() bool { return counted("u1") && counted("u2") })

		done, err := two.Reload(t.Context(), ruleFile(4, 1))
		if err != nil || !done.Changed {
			t.Fatalf("a newer file: %+v, %v", done, err)
		}
		eventually(t, "both run the new version", func() bool {
			return one.limitOf(t, "moving") == 4*event.One && two.limitOf(t, "moving") == 4*event.One
		})
		r.emit(hit("u1", "a"), hit("u2", "a"))
		eventually(t, "both users reach the new limit", func() bool { return len(r.verdicts()) == 2 })
		for _, v := range r.verdicts() {
			if v.Limit != 4*event.One || v.Count != 4*event.One {
				t.Errorf("verdict %+v, want 4 of 4", v)
			}
		}
		if again, err := one.Reload(t.Context(), ruleFile(4, 2)); err != nil || again.Changed || again.Version != done.Version {
			t.Errorf("the same rules again: %+v, %v; want version %d, unchanged", again, err, done.Version)
		}
	})
}

// A raised limit clears what the old one issued, and a lowered one issues verdicts, without an
// event. The removal of a rule clears what it had in force. The same happens if the rules changed
// while no aggregator ran.
func TestChangedLimitsAreJudgedAtOnce(t *testing.T) {
	inMemoryShows(t, "a changed limit is judged against the counters there are by a background pass within 10 s, and clears or issues verdicts", func(t *testing.T, r *rig) {
		set, file := withRules(t, ruleFile(3, 0))
		m := r.begin(set, file)
		r.emit(hit("u1", "a"), hit("u1", "a"), hit("u1", "a"), hit("u2", "a"))
		last := func(uid string) string {
			says := "nothing"
			for _, v := range r.verdicts() {
				if v.KeyText() == "uid="+uid && v.Rule == "moving" {
					says = v.State.String()
				}
			}
			return says
		}
		eventually(t, "u1 reaches 3", func() bool { return last("u1") == "block" })
		reload := func(limit, minutes int) {
			t.Helper()
			r.reload(m, ruleFile(limit, minutes))
		}
		reload(5, 1)
		eventually(t, "a limit of 5 clears it", func() bool { return last("u1") == "clear" })
		reload(1, 2)
		eventually(t, "a limit of 1 blocks both", func() bool { return last("u1") == "block" && last("u2") == "block" })
		if got := r.count("u1", "moving", m); got != 3*event.One {
			t.Errorf("u1 has counted %v, want 3", got)
		}
		m.end(t)

		set, file = withRules(t, ruleFile(9, 3))
		m = r.begin(set, file)
		eventually(t, "a limit of 9 that came with a restart clears both", func() bool { return last("u1") == "clear" && last("u2") == "clear" })
		reload(1, 4)
		eventually(t, "a limit of 1 blocks both", func() bool { return last("u1") == "block" && last("u2") == "block" })
		gone := ruleFile(1, 5)
		gone.Source = []byte(strings.Split(string(gone.Source), "    - {name: moving")[0])
		r.reload(m, gone)
		eventually(t, "without the rule nothing of it is in force", func() bool { return last("u1") == "clear" && last("u2") == "clear" })
	})
}

// A file with mistakes, or one that is older than the group's rules, changes nothing and says why.
// An instance that starts with an older file runs the group's rules.
func TestReloadThatChangesNothing(t *testing.T) {
	inMemoryShows(t, "a set with any error is refused whole, and the old set stays; a file older than the topic's latest is ignored and reported", func(t *testing.T, r *rig) {
		set, file := withRules(t, ruleFile(5, 10))
		one := r.begin(set, file)
		broken := RuleFile{Name: "rules.yaml", Source: []byte(strings.ReplaceAll(ruleText(7), "limit:", "limt:")), Modified: ruleDay.Add(time.Hour)}
		var mistakes rules.Errors
		if _, err := one.Reload(t.Context(), broken); !errors.As(err, &mistakes) || len(mistakes) < 2 {
			t.Errorf("a file with mistakes: %v", err)
		}
		if _, err := one.Reload(t.Context(), ruleFile(7, 9)); !errors.Is(err, ErrOlderRules) || !strings.Contains(err.Error(), "touch") {
			t.Errorf("an older file: %v", err)
		}
		if got := one.limitOf(t, "moving"); got != 5*event.One {
			t.Errorf("the limit is %v, want 5", got)
		}
		old, oldFile := withRules(t, ruleFile(3, 2))
		r.share = []int32{}
		two := r.start(old, oldFile)
		r.ready(one, two)
		eventually(t, "it has read the group's", func() bool { return two.book.Current().Number > 0 })
		r.share = nil
		if got := two.limitOf(t, "moving"); got != 5*event.One {
			t.Errorf("an instance with an older file runs a limit of %v, want the group's 5", got)
		}
		one.end(t)
		two.end(t)
		newer, newerFile := withRules(t, ruleFile(6, 20))
		three := r.begin(newer, newerFile)
		if got := three.limitOf(t, "moving"); got != 6*event.One {
			t.Errorf("an instance with a newer file runs a limit of %v, want its 6", got)
		}
	})
}

// An instance that cannot compile the group's rules keeps the old ones while it runs, and
// does not start with them.
func TestRulesThatDoNotCompileHere(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		set, file := withRules(t, ruleFile(5, 0))
		var old atomic.Bool
		old.Store(true)
		elder := func(c *Config) {
			c.RuleFile = ruleFile(5, 0)
			c.Compile = func(f RuleFile) (*rules.Set, error) {
				if old.Load() && strings.Contains(string(f.Source), "limit: 6,") {
					return nil, errors.New("this program does not know sixes")
				}
				return rules.CompileWith(f.Name, f.Source, f.Beside)
			}
		}
		one := r.begin(set, elder)
		r.share = []int32{}
		two := r.start(set, file)
		eventually(t, "both run the group's", func() bool { return two.book.Current().Number > 0 })
		if _, err := two.Reload(t.Context(), ruleFile(6, 1)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the newer instance runs the new version", func() bool { return two.limitOf(t, "moving") == 6*event.One })
		eventually(t, "the older one has met it", func() bool { failed, _ := one.book.FailedAt(); return failed > 0 })
		if got := one.limitOf(t, "moving"); got != 5*event.One {
			t.Errorf("the older instance runs a limit of %v, want 5 as before", got)
		}
		one.end(t)
		three := r.start(set, elder)
		err := <-three.done
		three.done <- err
		if err == nil || !strings.Contains(err.Error(), "does not compile here") {
			t.Errorf("an older program starts: %v", err)
		}
	})
}

// A recreated rules topic is not taken for the old one: the partitions know by which version they
// were counted.
func TestRulesTopicCreatedAnew(t *testing.T) {
	onKafkaShows(t, "a partition never opens under a version older than its last checkpoint's", func(t *testing.T, r *rig) {
		set, file := withRules(t, ruleFile(5, 0))
		one := r.begin(set, file)
		for i := range 4 {
			if _, err := one.Reload(t.Context(), ruleFile(10+i, 1+i)); err != nil {
				t.Fatal(err)
			}
		}
		r.emit(hit("u1", "a"))
		eventually(t, "it is counted", func() bool { return r.count("u1", "steady", one) == event.One })
		one.end(t)
		r.drop(r.names.Rules)

		two := r.start(set, file)
		err := <-two.done
		two.done <- err
		if err == nil || !strings.Contains(err.Error(), "--accept-new-topic") {
			t.Fatalf("with a new rules topic: %v", err)
		}
		three := r.begin(set, file, func(c *Config) { c.AcceptNewTopic = true })
		if got := r.count("u1", "steady", three); got != event.One {
			t.Errorf("u1 has counted %v, want 1", got)
		}
	})
}

// drop deletes a topic, and waits until it is gone.
func (r *rig) drop(topic string) {
	r.t.Helper()
	admin, err := sarama.NewClusterAdminFromClient(r.client)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := admin.DeleteTopic(topic); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "the topic is gone", func() bool {
		list, err := admin.ListTopics()
		_, there := list[topic]
		return err == nil && !there
	})
}

// Many reloads while events flow, a third of them broken, from two instances that see their files
// at different moments: what no version changes is counted exactly.
func TestReloadUnderLoad(t *testing.T) {
	everyKafka(t, func(t *testing.T, r *rig) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rnd := rand.New(rand.NewPCG(seed, 1))
		set, file := withRules(t, ruleFile(1000, 0))
		ms := []*member{r.start(set, file), nil}
		r.ready(ms[0])
		ms[1] = r.start(set, file)
		r.ready(ms...)

		const rounds, each, users, reloads = 20, 500, 50, 40
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range rounds {
				events := make([]*event.Event, each)
				for j := range events {
					events[j] = hit(fmt.Sprintf("u%d", (i*each+j)%users), "a")
				}
				r.emit(events...)
			}
		})
		for i := range reloads {
			f := ruleFile(1000+i, 1+i)
			if rnd.IntN(3) == 0 {
				// Cut anywhere, it does not compile.
				f.Source = append(f.Source[:rnd.IntN(len(f.Source))], "\n- ]"...)
			}
			_, _ = ms[rnd.IntN(2)].Reload(t.Context(), f) // broken ones change nothing
			if i == reloads/2 {
				ms[0].end(t)
				ms[0] = r.start(set, file)
			}
		}
		last := ruleFile(999999, 500)
		eventually(t, "the last version is out", func() bool {
			_, err := ms[1].Reload(t.Context(), last)
			return err == nil
		})
		wg.Wait()
		r.ready(ms...)
		want := event.Decimal(rounds*each/users) * event.One
		eventually(t, "all is counted", func() bool {
			for _, uid := range uids(users) {
				steady, moving := r.count(uid, "steady", ms...), r.count(uid, "moving", ms...)
				if steady != want || moving != want {
					t.Logf("%s has counted %v and %v, want %v", uid, steady, moving, want)
					return false
				}
			}
			return true
		})
		for _, m := range ms {
			eventually(t, "all run the last version", func() bool { return m.limitOf(t, "moving") == 999999*event.One })
		}
	})
}
