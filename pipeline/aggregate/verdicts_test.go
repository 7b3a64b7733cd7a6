package aggregate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/verdict"
)

// A rule's old window has a verdict in force, and its first event in the new window is over the
// limit: a clear and a block are issued at once. Of two verdicts with one record key and one seq,
// Redis keeps the first. So only the block is published.
func TestNoTwoVerdictsOfOneRecordKeyHaveOneSeq(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		tried := func(candidate, minutes int) RuleFile {
			f := weekFile(90, minutes)
			f.Source = []byte(strings.Replace(string(f.Source), "per: year, window: calendar", fmt.Sprintf("candidate: {limit: %d}, per: 1d", candidate), 1))
			return f
		}
		m := r.run(tried(20, 0)) // exact times, beside the live limit's panes
		r.emitEach(uids(4), 70)
		verdicts := func(limit string) (n int) {
			for _, v := range r.verdicts() {
				if v.Rule == "weekly/candidate" && v.State == verdict.Block && v.Limit.String() == limit {
					n++
				}
			}
			return n
		}
		eventually(t, "all are over the candidate", func() bool { return verdicts("20") == 4 })
		// Panes as well, which are the live limit's.
		r.reload(m, tried(68, 1))
		eventually(t, "all are over the other candidate", func() bool { return verdicts("68") == 4 })
		seen := map[string]bool{}
		for _, v := range r.verdicts() {
			place := fmt.Sprintf("%s at %d", verdict.AppendRecordKey(nil, &v), v.Seq)
			if seen[place] {
				t.Errorf("two verdicts of %s", place)
			}
			seen[place] = true
		}
	})
}
