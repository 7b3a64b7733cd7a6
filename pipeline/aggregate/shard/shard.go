package shard

import (
	"github.com/tallygate/tallygate/pipeline/aggregate/hotkeys"
	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

// Shard is one partition's counting. Make it with New.
//
// It is built in layers, each of which calls only those below it: base, issuing, telling, judging,
// intake, and Shard itself, which has what a takeover and a checkpoint see of all of them.
type Shard struct {
	intake

	accepted  bool  // offsets have started over, and no checkpoint says so yet
	start     int64 // of the changelog
	cutting   bool  // a checkpoint has begun, and is not covered
	restoring *restoring
}

// New returns an empty shard that counts by these rules.
func New(cfg Config, r Rules) *Shard {
	s := &Shard{restoring: &restoring{leftovers: map[string]leftover{}, parts: map[string][]byte{}}}
	s.base = base{
		cfg: cfg, by: jsonString(cfg.Instance),
		broker: event.NoTime, last: [Sources]event.Micros{event.NoTime, event.NoTime},
		epochs: noEpochs, epochsNoted: noEpochs,
	}
	s.spans, s.packing = spans{&s.cfg, &s.out}, packing{by: &s.cfg, asks: &s.out}
	s.table, s.issued = state.New(), issuedVerdicts{}
	s.gathered.table = s.table
	s.tally.Mismatches = map[rules.Mismatch]uint64{}
	s.tally.UnmatchedBy, s.tally.Misplaced = map[Unmatched]*uint64{}, map[string]Misplaced{}
	s.origins, s.producers, s.hot = map[int32]seen{}, producers{own: cfg.ID}, hotkeys.New(cfg.Seed)
	s.setRules(r)
	s.judged = judgedBy(r.Set) // nothing is there yet
	return s
}
