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
func (t *Takeover) Resume(f Found, clock Clock) (Resumed, error) {
	if _, err := t.CheckLoaded(math.MaxInt); err != nil {
		return Resumed{}, err
	}
	c := t.checkpoint
	if c == nil {
		c = &checkpoint{}
	}
	t.log.start = f.ChangelogStart
	if err := t.remember(c); err != nil {
		return Resumed{}, err
	}
	seek, err := t.checkOutputs(c, f)
	if err != nil {
		return Resumed{}, err
	}
	if f.Rules != nil {
		return Resumed{}, f.Rules
	}
	t.restore(c, clock)
	for src := range Sources {
		if err := t.resumeSource(src, c, f); err != nil {
			return Resumed{}, err
		}
		// Where records were deleted, the next checkpoint says so, even if nothing is counted.
		t.log.covered[src] = t.log.next[src]
		if c.Version > 0 {
			t.log.covered[src] = min(t.log.next[src], c.Next[src])
		}
	}
	t.judge.blowAgain(c)
	if err := t.judge.restoreJudged(c); err != nil {
		return Resumed{}, err
	}
	said := spoken{name: c.Strict, number: c.StrictNumber, limits: c.StrictLimits}
	if c.Strict != "" && c.Strict == t.rules.name() { // a program before this one wrote no more than the name
		said = spokenOf(&t.rules.Rules)
	}
	t.levels.announced.resumes(said)
	if t.levels.announce(nil) {
		t.judge.judged.done = 0
	}
	if is := t.rules.hash(); c.Rules != "" && c.Rules != is {
		t.log.note(Info, "this partition was last counted by another rule set; limits removed by the new rules are dropped, new limits start empty",
			"rules_hash", is, "rules_hash_before", c.Rules)
	}
	if err := t.restoreProducers(c); err != nil {
		return Resumed{}, err
	}
	t.rules.useExemptions()
	return Resumed{Seek: seek, StartsOver: t.log.accepted}, t.judge.noteBlocks()
}

// remember keeps the checkpoint for noteJudged.
func (t *Takeover) remember(c *checkpoint) (err error) {
	if c.Version > 0 {
		last := *c
		last.Judged = nil
		t.judge.lastCheckpoint, err = last.encode()
	}
	return err
}

func (t *Takeover) restore(c *checkpoint, clock Clock) {
	if c.Version > 0 {
		t.log.broker = min(c.Broker, clock.Local)
	}
	for from, o := range c.Origins {
		t.intake.origins[from] = seen{applied{o[0], int(o[1])}, uint32(o[2])}
	}
	t.intake.generation = c.Generation
	if c.Epochs != nil {
		t.log.epochs = *c.Epochs
	}
	t.log.epochsNoted = t.log.epochs
}

func (t *Takeover) restoreProducers(c *checkpoint) error {
	if c.Version == 0 {
		return nil
	}
	gone, err := t.intake.producers.restore(c, t.parts)
	if gone > 0 {
		t.log.note(Warn, "the changelog lacks parts of the table of producers; records that they sent twice may count twice", "parts", gone)
	}
	return err
}

// Republish publishes what the owner before has left unpublished, before the first event. Of
// several on one record key the newest stands for all. It ends the takeover.
func (t *Takeover) Republish(clock Clock) error {
	leftovers := t.leftovers
	for _, key := range slices.Sorted(maps.Keys(leftovers)) {
		l := leftovers[key]
		list, err := l.issued()
		if err != nil {
			return err
		}
		t.table.issued[key] = append(t.table.issued[key], list...)
		for _, is := range list {
			t.verdicts.publish(key, is, nil, clock)
		}
		if t.table.forgotten(key) {
			changes := make([]verdict.Verdict, len(list))
			for i, is := range list {
				changes[i] = is.v
			}
			for _, recordKey := range t.rules.erased([]byte(key), changes) {
				t.verdicts.erase(recordKey, nil)
			}
		}
	}
	if n := len(leftovers); n > 0 {
		t.log.note(Info, "published verdicts that the previous owner left unpublished", "keys", n)
	}
	*t = Takeover{}
	return nil
}

// forgotten reports whether a command has erased a key, and nothing came since: its block has what
// was applied, and no state.
func (t *table) forgotten(key string) bool {
	ref, known := t.Get([]byte(key))
	if !known {
		return false
	}
	b, err := decodeBlock(t.Block(ref))
	return err == nil && len(b.state) == 0
}
