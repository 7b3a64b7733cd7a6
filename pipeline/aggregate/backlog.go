package aggregate

import (
	"fmt"
	"strings"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/event"
)

// backlog is what waits to be counted from a source of an owned partition.
type backlog struct {
	records int64
	behind  time.Duration // how old what was counted last is; 0 where nothing waits
}

// backlog tells what waits of a source, as far as Kafka's last answer says.
func (p *partition) backlog(src shard.Source, at time.Time) backlog {
	r := p.readers[src].Load()
	p.lock()
	next, last := p.shard.Next(src), p.shard.Last(src)
	p.mu.Unlock()
	if r == nil {
		return backlog{}
	}
	b := backlog{records: max(0, r.Progress().End-next)}
	if b.records > 0 {
		since := p.openedAt // nothing was counted yet
		if last != event.NoTime {
			since = last.Time()
		}
		b.behind = max(0, at.Sub(since))
	}
	return b
}

// lateness says for people how late a partition counts.
func (p *partition) lateness(at time.Time) string {
	var late []string
	for src, what := range []string{shard.Input: "its events", shard.Loop: "what others forward to it"} {
		if b := p.backlog(shard.Source(src), at); b.records > 0 {
			late = append(late, fmt.Sprintf("%.1f s behind with %s (%d records wait)", b.behind.Seconds(), what, b.records))
		}
	}
	if len(late) == 0 {
		return fmt.Sprintf("partition %d is in step", p.id)
	}
	return fmt.Sprintf("partition %d is %s", p.id, strings.Join(late, ", and "))
}
