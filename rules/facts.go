package rules

import (
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/windows"
)

// outcome is what became of a limit's block by one event.
type outcome uint8

const (
	none    outcome = iota // there is no block
	held                   // a block is in force, as it was
	moved                  // it is to be published again
	issued                 // a new one
	cleared                // it ended before its end
)

// facts are what a judge knows.
type facts struct {
	window  []byte
	added   windows.Added
	latest  event.Micros  // when it judges: the limit's latest time
	at      event.Micros  // the event's own time
	limit   event.Decimal // 0: unlimited
	adds    bool          // the event added something: a verdict may be issued
	counts  bool          // it was counted: a penalty may be extended
	took    bool          // it took something back
	changed bool          // the limit judges otherwise than before, such as at a bucket's other rate
	exempt  bool          // the key is exempt
	pass    bool          // a pass over changed rules judges, and no event
}
