package shard

import "github.com/tallygate/tallygate/pipeline/event"

// compare tallies what an event contradicts of the vocabulary. Only the partition that an event was sent
// to does, once for each record that it reads.
func (s *intake) compare(e *event.Event) {
	if s.vocabulary == nil {
		return
	}
	s.mismatches = s.vocabulary.Event(s.mismatches[:0], e)
	for _, m := range s.mismatches {
		s.tally.Mismatches[m]++
	}
}
