package shard

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/rules"
)

// use has the rig count by other rules, and judges all keys by them.
func (r *levelRig) use(number int64, spec string) {
	r.t.Helper()
	rules := Rules{Number: number, Published: uint64(number), Set: compile(r.t, spec)}
	if err := r.s.judge.Use(rules); err != nil {
		r.t.Fatal(err)
	}
	for {
		keys, more := r.s.judge.NextToJudge(rules)
		if !more {
			break
		}
		for _, key := range keys {
			if _, err := r.s.judge.Key(key, r.clock); err != nil {
				r.t.Fatal(err)
			}
		}
		r.s.judge.PartJudged(rules)
	}
	if err := r.s.judge.PassDone(rules); err != nil {
		r.t.Fatal(err)
	}
}

// A version of the rules is said behind the levels of all keys whose limits became strict with it, at
// once when none did, and never where no rule is strict.
func TestVersionsAreSaidBehindTheirLevels(t *testing.T) {
	r := newLevelRig(t)
	loose := strings.ReplaceAll(strictRule, "strict: true", "then: {block: 1h}")
	r.s = New(Config{Of: 1, Topics: simTopics}, Rules{Number: 1, Published: 1, Set: compile(t, loose)})
	for i, uid := range []string{"u", "v", "w"} {
		r.count(`"id":"e%d","uid":%q,"outcome":"ok"`, i, uid)
	}
	r.use(2, strings.ReplaceAll(loose, "limit: 9,", "limit: 8,"))
	r.want("rules without strict ones", "")
	if s := r.s.snapshot(); s.Strict != "" {
		t.Errorf("the checkpoint says %q", s.Strict)
	}

	r.use(3, strictRule)
	if said := r.takeStrict(1); said != "" {
		t.Errorf("before the levels of two keys are taken, %q", said)
	}
	said := r.levels()
	if n := strings.Count(said, " 1, settles []"); n != 3 || !strings.HasSuffix(said, "; version 3") {
		t.Errorf("when limits became strict %q, want the levels of three keys, and then the version", said)
	}
	if s := r.s.snapshot(); s.Strict != r.s.rules.name() {
		t.Errorf("the checkpoint says %q, want %q", s.Strict, r.s.rules.name())
	}

	r.use(4, strings.ReplaceAll(strictRule, "limit: 9,", "limit: 8,"))
	r.want("when none became strict", "version 4")
	r.use(5, loose)
	r.want("when none is strict any more", "version 5")
}

// takeStrict asks for so many levels, and has none of their states acknowledged.
func (r *levelRig) takeStrict(most int) string {
	r.t.Helper()
	if _, err := r.s.levels.Publish(most); err != nil {
		r.t.Fatal(err)
	}
	return fmt.Sprint(r.s.log.out.Verdicts)[1 : len(fmt.Sprint(r.s.log.out.Verdicts))-1]
}

// Who takes over says the version again, behind all levels, unless a checkpoint says that it is said.
func TestTheVersionIsSaidAtATakeover(t *testing.T) {
	for name, strict := range map[string]string{"not said": "", "said": "said"} {
		r := newLevelRig(t)
		if strict != "" {
			strict = r.s.rules.name()
		}
		c := r.s.snapshot()
		c.Strict, c.Judged = strict, r.s.judge.judged.record()
		r.s.takeover.checkpoint = c
		if _, err := r.s.takeover.Resume(Found{Committed: -1}, r.clock); err != nil {
			t.Fatal(err)
		}
		if r.s.judge.AllJudged() != (strict != "") {
			t.Errorf("%s: all keys are judged: %t", name, r.s.judge.AllJudged())
		}
		if gone := r.s.levels.announced.heard[0].lacks(&rules.Set{}); len(gone) != 1 && strict != "" {
			t.Errorf("%s: of the limits that enforcers ask under, %v are known", name, gone)
		}
	}
}

// Until a version is said, enforcers ask by the one before: a level by the new rules names the limits of it that it
// says nothing of, also when another owner has taken over meanwhile. Limits that are the same are none of these.
func TestLevelsBeforeTheirVersionSayWhichLimitsAreGone(t *testing.T) {
	const spec = `
  max_lateness: 1h
  rules:
    - {name: daily, match: {api: a, outcome: ok}, limit: 9, per: %s, window: calendar, strict: true}
    - {name: same, match: {api: a, outcome: ok}, limit: %d, per: 1h, strict: true}`
	was := Rules{Number: 1, Published: 1, Set: compile(t, fmt.Sprintf(spec, "day", 64))}
	is := Rules{Number: 2, Published: 2, Set: compile(t, fmt.Sprintf(spec, "month", 65))}
	gone := []protocol.Section{protocol.Gone(was.Set.Limits[0].Hash.String(), 1)}
	said := func(r *levelRig) []protocol.Section { // by the level of an event
		r.count(`"id":"e%d","outcome":"ok"`, r.next)
		if _, err := r.s.levels.Publish(10); err != nil {
			t.Fatal(err)
		}
		var sections []protocol.Section
		for _, a := range r.s.log.out.States {
			if a.Ack != nil && a.Ack.level != nil {
				sections = a.Ack.level.Sections
			}
		}
		r.levels()
		return slices.DeleteFunc(sections, func(s protocol.Section) bool { return s.Level >= 0 })
	}

	r := newLevelRig(t)
	r.s = New(Config{Of: 1, Topics: simTopics}, was)
	r.s.levels.announce(nil)
	if err := r.s.judge.PassDone(was); err != nil {
		t.Fatal(err)
	}
	if got := said(r); len(got) > 0 {
		t.Errorf("with the version that is said, %v", got)
	}
	if err := r.s.judge.Use(is); err != nil {
		t.Fatal(err)
	}
	if got := said(r); !reflect.DeepEqual(got, gone) {
		t.Errorf("before the next version is said, %v, want %v", got, gone)
	}
	c := r.s.snapshot()
	if err := r.s.judge.PassDone(is); err != nil {
		t.Fatal(err)
	}
	r.want("when all keys are judged", "version 2")
	if got := said(r); len(got) > 0 {
		t.Errorf("behind the next version, %v", got)
	}

	c.Next = [Sources]int64{} // the topics of the next owner are empty
	value, err := c.encode()
	if err != nil {
		t.Fatal(err)
	}
	r = newLevelRig(t)
	r.s = New(Config{Of: 1, Topics: simTopics}, is)
	if r.s.takeover.checkpoint, err = decodeCheckpoint(value); err != nil {
		t.Fatal(err)
	}
	if _, err := r.s.takeover.Resume(Found{Committed: -1}, r.clock); err != nil {
		t.Fatal(err)
	}
	if got := said(r); !reflect.DeepEqual(got, gone) {
		t.Errorf("behind a takeover, %v, want %v", got, gone)
	}
}

// Enforcers ask by a version as soon as it is said. A crash right behind that, before a checkpoint knows of it, and
// other rules at once: levels by these name what that version had, and what the one before had.
func TestACrashBehindAVersionForgetsNoLimit(t *testing.T) {
	const spec = `
  max_lateness: 1h
  rules:
    - {name: daily, match: {api: a, outcome: ok}, limit: 9, per: %s, window: calendar, strict: true}`
	var versions []Rules
	for i, per := range []string{"day", "month", "week"} {
		versions = append(versions, Rules{Number: int64(i + 1), Published: uint64(i + 1), Set: compile(t, fmt.Sprintf(spec, per))})
	}
	of := func(i int) protocol.Section {
		return protocol.Gone(versions[i].Set.Limits[0].Hash.String(), versions[i].Published)
	}

	r := newLevelRig(t)
	r.s = New(Config{Of: 1, Topics: simTopics}, versions[0])
	r.s.levels.announce(nil)
	if err := r.s.judge.PassDone(versions[0]); err != nil {
		t.Fatal(err)
	}
	r.want("at the start", "version 1")
	c := r.s.snapshot()
	if err := r.s.judge.Use(versions[1]); err != nil {
		t.Fatal(err)
	}
	if err := r.s.judge.PassDone(versions[1]); err != nil {
		t.Fatal(err)
	}
	for _, a := range r.s.log.out.States { // it is on its way: a level may come before it, or behind
		if string(a.Key) == sayingKey && !reflect.DeepEqual(r.s.levels.announced.gone, []protocol.Section{of(0)}) {
			t.Errorf("before it is said, levels name %v", r.s.levels.announced.gone)
		}
	}
	r.want("when all keys are judged", "version 2")

	c.Next = [Sources]int64{} // the topics of the next owner are empty
	value, err := c.encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		what string
		is   Rules
		gone []protocol.Section
	}{
		{"with the same rules", versions[1], []protocol.Section{of(0)}},
		{"with others", versions[2], []protocol.Section{of(0), of(1)}},
	} {
		s := New(Config{Of: 1, Topics: simTopics}, tt.is)
		if s.takeover.checkpoint, err = decodeCheckpoint(value); err != nil {
			t.Fatal(err)
		}
		if err := s.takeover.loadOwnerRecord([]byte(sayingKey), r.saying); err != nil {
			t.Fatal(err)
		}
		if _, err := s.takeover.Resume(Found{Committed: -1}, r.clock); err != nil {
			t.Fatal(err)
		}
		if got := s.levels.announced.gone; !reflect.DeepEqual(got, tt.gone) {
			t.Errorf("%s, levels name %v, want %v", tt.what, got, tt.gone)
		}
	}
}
