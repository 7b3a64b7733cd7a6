package shard

import "github.com/tallygate/tallygate/pipeline/event"

// compare tallies what an event contradicts of the vocabulary. Only the partition that an event was sent
// to does, once for each record that it reads.
func (in *intake) compare(e *event.Event) {
	if in.rules.vocabulary == nil {
		return
	}
	in.mismatches = in.rules.vocabulary.Event(in.mismatches[:0], e)
	for _, m := range in.mismatches {
		in.log.tally.Mismatches[m]++
	}
}
