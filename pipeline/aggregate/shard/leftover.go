package shard

import (
	"fmt"

	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Takeover takes over what owners before have written. It keeps what the changelog has beside the keys.
type Takeover struct {
	log      *Log
	rules    *inUse
	table    *table
	levels   *Levels
	verdicts *Verdicts
	judge    *Judge
	intake   *intake

	checkpoint *checkpoint // the last one
	leftovers  map[string]leftover
	parts      map[string][]byte // of the table of producers, by key

	// No key has reached more of a source; perhaps none as much, since keys are deleted, and offsets start
	// over. Who has to know looks at the keys.
	reached [Sources]int64

	checked state.Place // the states before it were looked at
}

// leftover is what a key's last record says of verdicts that were not yet published.
type leftover struct {
	offset   int64 // of that record: the seq of those without one
	verdicts []unpublished
}

// issued are the verdicts to publish once more.
func (l *leftover) issued() ([]*issued, error) {
	var list []*issued
	newest := map[string]int{}
	for _, u := range l.verdicts {
		v, err := verdict.Parse(u.body)
		if err != nil {
			return nil, fmt.Errorf("unpublished verdict in the changelog at %d: %w", l.offset, err)
		}
		if v.Seq = u.seq; u.seq < 0 {
			v.Seq = l.offset
		}
		is := &issued{unpublished: unpublished{v.Seq, u.body}, v: v, broker: event.NoTime}
		record := string(verdict.AppendRecordKey(nil, &v))
		if i, ok := newest[record]; ok {
			list[i] = is
			continue
		}
		newest[record] = len(list)
		list = append(list, is)
	}
	return list, nil
}
