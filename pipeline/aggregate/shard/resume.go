package shard

import (
	"maps"
	"math"
	"slices"

	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Resumed is where a partition goes on.
type Resumed struct {
	// Seek says that the sources are to be read from Next. Otherwise there is no checkpoint, and they
	// start at their topics' start.
	Seek bool
	// StartsOver says that a checkpoint is due before the first event: an owner after a crash would
	// start over once more.
	StartsOver bool
}

// Resume finds where to go on in both sources, when all that was loaded can be read.
func (s *Shard) Resume(f Found, clock Clock) (Resumed, error) {
	if _, err := s.CheckLoaded(math.MaxInt); err != nil {
		return Resumed{}, err
	}
	c := s.restoring.checkpoint
	if c == nil {
		c = &checkpoint{}
	}
	s.start = f.ChangelogStart
	if err := s.remember(c); err != nil {
		return Resumed{}, err
	}
	seek, err := s.checkOutputs(c, f)
	if err != nil {
		return Resumed{}, err
	}
	if f.Rules != nil {
		return Resumed{}, f.Rules
	}
	s.restore(c, clock)
	for src := range Sources {
		if err := s.resumeSource(src, c, f); err != nil {
			return Resumed{}, err
		}
		// Where records were deleted, the next checkpoint says so, even if nothing is counted.
		s.covered[src] = s.next[src]
		if c.Version > 0 {
			s.covered[src] = min(s.next[src], c.Next[src])
		}
	}
	s.blowAgain(c)
	if err := s.restoreJudged(c); err != nil {
		return Resumed{}, err
	}
	said := spoken{name: c.Strict, number: c.StrictNumber, limits: c.StrictLimits}
	if c.Strict != "" && c.Strict == s.rules.name() { // a program before this one wrote no more than the name
		said = spokenOf(&s.rules)
	}
	s.announced.resumes(said)
	s.announce(nil)
	if is := s.rules.hash(); c.Rules != "" && c.Rules != is {
		s.note(Info, "this partition was last counted by another rule set; limits removed by the new rules are dropped, new limits start empty",
			"rules_hash", is, "rules_hash_before", c.Rules)
	}
	if err := s.restoreProducers(c); err != nil {
		return Resumed{}, err
	}
	s.useExemptions()
	return Resumed{Seek: seek, StartsOver: s.accepted}, s.noteBlocks()
}

// remember keeps the checkpoint for noteJudged.
func (s *Shard) remember(c *checkpoint) (err error) {
	if c.Version > 0 {
		last := *c
		last.Judged = nil
		s.lastCheckpoint, err = last.encode()
	}
	return err
}

func (s *Shard) restore(c *checkpoint, clock Clock) {
	if c.Version > 0 {
		s.broker = min(c.Broker, clock.Local)
	}
	for from, o := range c.Origins {
		s.origins[from] = seen{applied{o[0], int(o[1])}, uint32(o[2])}
	}
	s.generation = c.Generation
	if c.Epochs != nil {
		s.epochs = *c.Epochs
	}
	s.epochsNoted = s.epochs
}

func (s *Shard) restoreProducers(c *checkpoint) error {
	if c.Version == 0 {
		return nil
	}
	gone, err := s.producers.restore(c, s.restoring.parts)
	if gone > 0 {
		s.note(Warn, "the changelog lacks parts of the table of producers; records that they sent twice may count twice", "parts", gone)
	}
	return err
}

// Republish publishes what the owner before has left unpublished, before the first event. Of
// several on one record key the newest stands for all. It ends the takeover.
func (s *Shard) Republish(clock Clock) error {
	leftovers := s.restoring.leftovers
	s.restoring = nil
	for _, key := range slices.Sorted(maps.Keys(leftovers)) {
		l := leftovers[key]
		list, err := l.issued()
		if err != nil {
			return err
		}
		s.issued[key] = append(s.issued[key], list...)
		for _, is := range list {
			s.publish(key, is, nil, clock)
		}
		if s.forgotten(key) {
			changes := make([]verdict.Verdict, len(list))
			for i, is := range list {
				changes[i] = is.v
			}
			for _, recordKey := range s.erased([]byte(key), changes) {
				s.erase(recordKey, nil)
			}
		}
	}
	if n := len(leftovers); n > 0 {
		s.note(Info, "published verdicts that the previous owner left unpublished", "keys", n)
	}
	return nil
}

// forgotten reports whether a command has erased a key, and nothing came since: its block has what
// was applied, and no state.
func (s *Shard) forgotten(key string) bool {
	ref, known := s.table.Get([]byte(key))
	if !known {
		return false
	}
	b, err := decodeBlock(s.table.Block(ref))
	return err == nil && len(b.state) == 0
}
