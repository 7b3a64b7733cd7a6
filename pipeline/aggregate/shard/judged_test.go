package shard

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/rules"
)

// Whatever changes while passes begin, go on in another process and are through: a limit that is
// taken for judged by the present set was judged by it, and by nothing since, in every part of the
// table that the pass does not come to any more or has still to come to.
func TestWhatIsTakenForJudgedIs(t *testing.T) {
	t.Parallel()
	sets := judgedSets(t)
	rapid.Check(t, func(t *rapid.T) {
		set := rapid.SampledFrom(sets).Draw(t, "first")
		j := judgedBy(set)
		var parts [judgedAll]rules.Judged // what each part's keys were judged by, by limit
		for i := range parts {
			parts[i] = set.Judged()
		}
		judge := func(n int) {
			for ; n > 0 && j.done < judgedAll; n-- {
				parts[j.done] = set.Judged() // what is gone has nothing in force any more
				j.done++
			}
			if j.done == judgedAll {
				j = judgedBy(set)
			}
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				set = rapid.SampledFrom(sets).Draw(t, "set")
				j.change(set)
			case 1:
				judge(rapid.IntRange(0, judgedAll-1).Draw(t, "parts"))
			case 2:
				judge(judgedAll)
			case 3:
				j = reread(t, &j)
			}
			for hash, by := range set.Judged() {
				for i := j.done; i < judgedAll; i++ {
					if was, known := set.Since(parts[i])[hash]; known && j.limits[hash] == by && was != by {
						t.Fatalf("part %d was judged by %x, and %x is taken for it", i, was, by)
					}
				}
			}
			if j.done == judgedAll && j.pass != set.Hash {
				t.Fatal("the pass is through, and was by another set")
			}
		}
	})
}

func judgedSets(t *testing.T) (sets []*rules.Set) {
	// Above 64 a sliding window keeps something else, and so it does with refunds.
	for _, limits := range [][2]string{{"1", "1"}, {"1", "2"}, {"2", "2"}, {"2", ""}, {"", "1"}, {"100", "2"}, {"100", "100, refunds: true"}, {"1", "2, refunds: true"}} {
		text := "  rules:\n"
		for i, name := range []string{"a", "b"} {
			if limits[i] != "" {
				text += fmt.Sprintf("    - {name: %s, match: {api: x}, limit: %s, per: 1h, then: {block: 1h}}\n", name, limits[i])
			}
		}
		sets = append(sets, compile(t, text))
	}
	return sets
}

// reread returns the next owner's state.
func reread(t *rapid.T, j *judged) judged {
	text, err := json.Marshal(checkpoint{Version: checkpointVersion, Judged: j.record()})
	if err != nil {
		t.Fatal(err)
	}
	c, err := decodeCheckpoint(text)
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Judged.judged()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A limit whose window keeps something else now goes on under another name: what it was judged by
// is known under that.
func TestALimitIsKnownToBeJudgedUnderItsNewName(t *testing.T) {
	sets, renamed := judgedSets(t), 0
	for _, before := range sets {
		for _, after := range sets {
			j := judgedBy(before)
			j.change(after)
			for hash, by := range after.Judged() {
				was, known := after.Since(before.Judged())[hash]
				if _, same := before.Judged()[hash]; known && !same && was == by {
					renamed++
				}
				if got, has := j.limits[hash]; !has || (got == by) != (known && was == by) {
					t.Errorf("a limit that was judged by %x (%t) and is to be by %x is taken for %x (%t)", was, known, by, got, has)
				}
			}
		}
	}
	if renamed == 0 {
		t.Error("no limit goes on under another name")
	}
}

// What a checkpoint says of it comes back as it was, and what it cannot have said is an error.
func TestWhatIsJudgedComesBack(t *testing.T) {
	want := judgedBy(judgedSets(t)[0])
	want.done, want.doubted = 7, true
	got, err := want.record().judged()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	hash := strings.Repeat("00", 32)
	for name, r := range map[string]judgedRecord{
		"no pass":    {Pass: ""},
		"odd pass":   {Pass: hash[1:]},
		"long pass":  {Pass: hash + "00"},
		"no hex":     {Pass: "x" + hash[1:]},
		"odd limit":  {Pass: hash, Limits: map[string]string{"00": hash}},
		"odd judged": {Pass: hash, Limits: map[string]string{hexOf(rules.SectionHash{}): "0"}},
	} {
		if _, err := r.judged(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for done, want := range map[int]int{-1: 0, 0: 0, judgedAll: judgedAll, judgedAll + 1: judgedAll} {
		r := judgedRecord{Pass: hash, Done: done}
		if got, err := r.judged(); err != nil || got.done != want {
			t.Errorf("%d parts: %d, %v, want %d", done, got.done, err, want)
		}
	}
}

func hexOf(h rules.SectionHash) string { return hex.EncodeToString(h[:]) }
