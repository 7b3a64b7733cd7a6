package publish

import (
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

// maxSettles bounds the permits that one call settles: other calls wait for it.
const maxSettles = 2000

// batch makes a batch of records up to an offset, or of as many of them as one call takes. Levels are
// coalesced by key, at the place of the key's first one: no level is behind the version that it
// precedes.
func batch(records []Record, start, end int64, most int) *protocol.Batch {
	b := &protocol.Batch{Start: start, Next: end}
	place, settles := map[string]int{}, 0
	for i := range records {
		r := &records[i]
		at, again := 0, false
		if r.Level != nil {
			settles += len(r.Level.Settles)
			at, again = place[r.Level.Key]
		}
		if len(b.Records) == most && !again || settles > maxSettles && i > 0 {
			b.Next = r.Offset
			return b
		}
		switch {
		case again:
			b.Records[at].Level = b.Records[at].Level.Merge(r.Level)
			continue
		case r.Level != nil:
			place[r.Level.Key] = len(b.Records)
		case r.Gone != "":
			delete(place, r.Gone) // what follows is behind the tombstone
		}
		b.Records = append(b.Records, r.Record)
	}
	return b
}
