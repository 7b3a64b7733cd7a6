package aggregate

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
)

// outdatedFile is a version of the file that a previous version of the program accepted, and that
// this one refuses as a file.
func outdatedFile(limit, minutes int) RuleFile {
	f := ruleFile(limit, minutes)
	f.Source = []byte(strings.ReplaceAll(string(f.Source), `match: {api: "*"}, limit: 1000000`, `match: {api: "*"}, when: uid != 42, limit: 1000000`))
	return f
}

// elder is an older program: it does not detect comparisons that are always false.
func elder(c *Config) {
	c.Compile = func(f RuleFile) (*rules.Set, error) { return rules.CompilePublished(f.Name, f.Source, f.Beside) }
}

// publishAs appends a version of the rules as another program would.
func (r *rig) publishAs(by string, f RuleFile) {
	r.t.Helper()
	value, err := json.Marshal(ruleRecord{api.RuleRecord{
		Format: ruleRecordFormat, Hash: "of another program", Name: "theirs", File: f.Name, Modified: f.Modified, By: by, At: f.Modified, Source: string(f.Source),
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.sendAll([]*sarama.ProducerMessage{{Topic: r.names.Rules, Partition: 0, Key: sarama.StringEncoder(ruleRecordKey), Value: sarama.ByteEncoder(value)}})
}

// A group runs a version that today's compiler refuses in a file. A newer program takes it over as
// it is, beside older programs and alone, and all counts continue. It still refuses a file like
// that.
func TestAGroupsRulesThatAFileMayNotHaveAnyMore(t *testing.T) {
	onKafka(t, func(t *testing.T, r *rig) {
		old := outdatedFile(1000, 10)
		set, err := rules.CompilePublished(old.Name, old.Source, old.Beside)
		if err != nil {
			t.Fatal(err)
		}
		one := r.begin(set, elder, func(c *Config) { c.RuleFile = old })
		r.emitEach(uids(20), 3)
		counted := func(n int, ms ...*member) func() bool {
			return func() bool {
				for _, uid := range uids(20) {
					if want := event.Decimal(n) * event.One; r.count(uid, "steady", ms...) != want || r.count(uid, "moving", ms...) != want {
						return false
					}
				}
				return true
			}
		}
		eventually(t, "an older program counts", counted(3, one))

		good, file := withRules(t, ruleFile(1000, 0)) // fixed, and older than the group's
		two := r.start(good, file)
		r.ready(one, two)
		eventually(t, "they share the partitions", func() bool { return len(one.owned()) == rigPartitions/2 && len(two.owned()) == rigPartitions/2 })
		r.emitEach(uids(20), 2)
		eventually(t, "both count on", counted(5, one, two))
		one.end(t)
		r.ready(two)
		eventually(t, "the newer one counts alone", counted(5, two))
		if v := two.book.Current(); v.Number != 1 || len(v.Set.Outdated) != 1 || !strings.Contains(v.Set.Outdated.Error(), `text stands in quotes: "42"`) {
			t.Errorf("it runs version %d, of which it tells %v", v.Number, v.Set.Outdated)
		}

		var mistakes rules.Errors
		if _, err := two.Reload(t.Context(), outdatedFile(1001, 20)); !errors.Is(err, ErrRules) || !errors.As(err, &mistakes) || mistakes[0].Line != 6 {
			t.Errorf("a file like that: %v", err)
		}
		if done, err := two.Reload(t.Context(), ruleFile(1000, 30)); err != nil || !done.Changed || done.Version != 2 {
			t.Errorf("the fixed file: %+v, %v", done, err)
		}
		r.emitEach(uids(20), 1)
		eventually(t, "no count is lost", counted(6, two))
	})
}

// Rules without a meaning here are not taken over. No instance continues with an earlier version,
// even if the topic has one. The operator is told which version it is, where it is wrong, and what
// to do.
func TestAGroupsRulesThatDoNotCompileHere(t *testing.T) {
	onKafka(t, func(t *testing.T, r *rig) {
		set, file := withRules(t, ruleFile(5, 0))
		one := r.begin(set, file)
		r.emit(hit("u1", "a"))
		eventually(t, "it is counted", func() bool { return r.count("u1", "steady", one) == event.One })
		one.end(t)
		bad := ruleFile(6, 10)
		bad.Source = []byte(strings.Replace(string(bad.Source), "limit: 6", "limt: 6", 1))
		r.publishAs("another-aggregator", bad)

		told := func(what string, err error) {
			t.Helper()
			for _, part := range []string{
				"version 2 of the group's rules", "another-aggregator", ruleDay.Add(10 * time.Minute).Format(time.RFC3339), "rules.yaml:7:41", `did you mean "limit"?`, "fix the rule file, touch it",
			} {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %v, without %q", what, err, part)
				}
			}
		}
		for range 2 { // a supervisor restarts it
			two := r.start(set, file)
			err := <-two.done
			two.done <- err
			told("a start with a good file that is older", err)
		}
		_, _, _, err := GroupRules(t.Context(), Config{Brokers: r.brokers, Prefix: r.names.Group})
		told("a start with a broken file", err)

		fixed, newer := withRules(t, ruleFile(7, 20))
		three := r.begin(fixed, newer)
		if v := three.book.Current(); v.Number != 3 || r.count("u1", "steady", three) != event.One {
			t.Errorf("with a newer file it runs version %d, and u1 has counted %v", v.Number, r.count("u1", "steady", three))
		}
		r.publishAs("another-aggregator", bad) // while it runs
		eventually(t, "it has met it", func() bool { failed, _ := three.book.FailedAt(); return failed == 4 })
		r.emit(hit("u1", "a"))
		eventually(t, "it counts on", func() bool { return r.count("u1", "steady", three) == 2*event.One })
		if done, err := three.Reload(t.Context(), ruleFile(7, 20)); err != nil || done.Version != 5 {
			t.Errorf("the file that it runs, which is newer than the refused one: %+v, %v", done, err)
		}
	})
}
