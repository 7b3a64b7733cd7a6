package aggregate

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
)

// audits are the entries of a type in the audit topic, the oldest first in each partition.
func (r *rig) audits(kind string) (all []map[string]any) {
	r.t.Helper()
	for p := range int32(rigPartitions) {
		for _, m := range r.records(r.names.Audit, p) {
			var e map[string]any
			if err := json.Unmarshal(m.Value, &e); err != nil {
				r.t.Fatal(err)
			}
			if e["type"] == kind {
				all = append(all, e)
			}
		}
	}
	return all
}

// All versions stay, and any of them can run again. Files that are older do not replace it, nor do copies of what was
// rolled back, whatever time they bear; a file that somebody changes does.
func TestRollBack(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		set, file := withRules(t, ruleFile(5, 0))
		one := r.begin(set, file)
		for i := range 3 {
			if _, err := one.Reload(t.Context(), ruleFile(6+i, 1+i)); err != nil {
				t.Fatal(err)
			}
		}
		all, more, err := one.book.Versions(t.Context(), 0, 10)
		if err != nil || more || len(all) != 4 || all[0].Version != 4 || all[3].Version != 1 || all[0].Name != "v8" || all[0].Bytes != len(ruleText(8)) || all[0].From != 0 {
			t.Fatalf("%+v %v %v", all, more, err)
		}
		all, more, err = one.book.Versions(t.Context(), 4, 2)
		if err != nil || !more || len(all) != 2 || all[0].Version != 3 || all[1].Version != 2 {
			t.Errorf("a page: %+v %v %v", all, more, err)
		}

		done, err := one.book.Rollback(t.Context(), api.Rollback{Version: 2, Reason: "too strict", By: "alice", OnBehalfOf: "bob"})
		if err != nil || done.Version != 5 || !done.Changed || one.limitOf(t, "moving") != 6e6 {
			t.Fatalf("%+v %v, the limit is %v", done, err, one.limitOf(t, "moving"))
		}
		old, err := one.book.Version(t.Context(), 5)
		if err != nil || old.From != 2 || old.Reason != "too strict" || old.By != "alice" || old.OnBehalfOf != "bob" || old.Source != ruleText(6) {
			t.Errorf("%+v %v", old, err)
		}
		for version, want := range map[int64]error{5: ask.ErrRunning, 2: ask.ErrRunning, 0: ask.ErrNoVersion, -1: ask.ErrNoVersion, 6: ask.ErrNoVersion, 1 << 60: ask.ErrNoVersion} {
			if _, err := one.book.Rollback(t.Context(), api.Rollback{Version: version, Reason: "r"}); !errors.Is(err, want) {
				t.Errorf("to version %d: %v", version, err)
			}
		}

		// The file that was rolled back: as it is, touched, and the copy of one that is slow.
		later := func(limit int) RuleFile {
			f := ruleFile(limit, 0)
			f.Modified = time.Now().Add(time.Hour)
			return f
		}
		for _, f := range []RuleFile{ruleFile(8, 3), later(8), later(7)} {
			if done, err := one.Reload(t.Context(), f); !errors.Is(err, ErrOlderRules) || done.Changed || !strings.Contains(err.Error(), "change") {
				t.Errorf("a file with a version that was rolled back: %+v %v", done, err)
			}
		}
		if done, err := one.Reload(t.Context(), later(6)); err != nil || done.Changed {
			t.Errorf("a file with the version that runs: %+v %v", done, err)
		}
		one.end(t)
		f := later(8)
		two := r.begin(set, func(c *Config) { c.RuleFile = f }) // a container starts, and its file is new
		if two.book.Current().Number != 5 || two.limitOf(t, "moving") != 6e6 {
			t.Errorf("a restart undoes the roll back: version %d runs", two.book.Current().Number)
		}
		if done, err := two.Reload(t.Context(), later(9)); err != nil || done.Version != 6 || two.limitOf(t, "moving") != 9e6 {
			t.Errorf("a changed file: %+v %v", done, err)
		}
		if done, err := two.book.Rollback(t.Context(), api.Rollback{Version: 4, Reason: "it was right"}); err != nil || done.Version != 7 || two.limitOf(t, "moving") != 8e6 {
			t.Errorf("forward again: %+v %v", done, err)
		}

		eventually(t, "the audit has them all", func() bool { return len(r.audits("rules")) == 7 })
		for i, e := range r.audits("rules") {
			from, by := map[int]any{4: 2.0, 6: 4.0}[i], map[int]any{4: "alice"}[i]
			if by == nil {
				by = two.name()
			}
			if e["version"] != float64(i+1) || e["from"] != from || i != 4 && i < 4 && e["by"] != one.name() || i >= 4 && e["by"] != by {
				t.Errorf("%d: %v", i, e)
			}
		}
	})
}

// A file that is of the future when it is rolled back does not come back.
func TestRollBackOfAFileFromTheFuture(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		set, file := withRules(t, ruleFile(5, 0))
		one := r.begin(set, file)
		future := ruleFile(6, 0)
		future.Modified = time.Now().Add(24 * time.Hour)
		if _, err := one.Reload(t.Context(), future); err != nil {
			t.Fatal(err)
		}
		if _, err := one.book.Rollback(t.Context(), api.Rollback{Version: 1, Reason: "r"}); err != nil {
			t.Fatal(err)
		}
		if _, err := one.Reload(t.Context(), future); !errors.Is(err, ErrWithdrawnRules) {
			t.Error(err)
		}
		newer := ruleFile(7, 0)
		newer.Modified = future.Modified.Add(time.Second)
		if done, err := one.Reload(t.Context(), newer); err != nil || done.Version != 4 {
			t.Errorf("%+v %v", done, err)
		}
	})
}

// A start reads the last of thousands of versions, and not all of them; versions that no program can read are no
// obstacle.
func TestThousandsOfVersions(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		set, file := withRules(t, ruleFile(5, 0))
		one := r.begin(set, file)
		one.end(t)
		const versions = 5000
		msgs := make([]*sarama.ProducerMessage, 0, versions)
		for i := range versions {
			value, err := json.Marshal(ruleRecord{api.RuleRecord{Format: ruleRecordFormat, Hash: fmt.Sprint(i), Name: "n", File: "f", Modified: ruleDay, By: "b", At: ruleDay, Source: ruleText(10) + strings.Repeat("#", 2000)}})
			if err != nil {
				t.Fatal(err)
			}
			if i == versions-2 {
				value = []byte("{")
			}
			msgs = append(msgs, &sarama.ProducerMessage{Topic: r.names.Rules, Key: sarama.StringEncoder(ruleRecordKey), Value: sarama.ByteEncoder(value), Partition: 0})
		}
		for len(msgs) > 0 { // in batches that the topic takes
			n := min(len(msgs), 250)
			r.sendAll(msgs[:n])
			msgs = msgs[n:]
		}
		r.emitTo(r.names.Rules, 0, "of another program")
		began := time.Now()
		two := r.begin(set, file)
		t.Logf("a start with %d versions takes %v", versions, time.Since(began))
		if got := two.book.Current().Number; got != versions+1 {
			t.Errorf("version %d runs", got)
		}
		all, more, err := two.book.Versions(t.Context(), 0, 300)
		if err != nil || !more || len(all) != 300 || all[0].Version != versions+1 || all[1].Version != versions-1 || all[299].Version != versions-299 {
			t.Errorf("%d %v %v", len(all), more, err)
		}
		if all, more, err = two.book.Versions(t.Context(), 3, 300); err != nil || more || len(all) != 2 {
			t.Errorf("the oldest: %+v %v %v", all, more, err)
		}
	})
}
