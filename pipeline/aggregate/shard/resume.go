package shard

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tallygate/tallygate/verdict"
)

// Resumed is the place at which a partition goes on.
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

// checkOutputs refuses to go on when what earlier owners wrote is gone: verdicts are ordered
// by offsets of the changelog, and in a new one these start below all that Redis and the
// enforcers have.
func (t *Takeover) checkOutputs(c *checkpoint, f Found) (seek bool, err error) {
	why := t.outputsLost(c, f)
	switch {
	case why == "":
	case !t.log.cfg.AcceptNewTopic:
		return false, fmt.Errorf("%w: %s; start over under another --prefix, or delete %s and the blocklist in Redis too, and start with --accept-new-topic",
			ErrFinal, why, t.log.cfg.Topics.Verdicts.Name)
	default:
		t.log.note(Warn, "starting over with the states that are left", "reason", why)
		t.log.accepted = true
	}
	return c.Version > 0 || why != "", nil
}

// outputsLost names the losses of the changelog and the verdicts; "" is nothing.
func (t *Takeover) outputsLost(c *checkpoint, f Found) (why string) {
	table := t.log.cfg.Topics.Table
	for _, topic := range []Topic{table, t.log.cfg.Topics.Verdicts} {
		if was := c.Topics[topic.Name]; was != "" && was != topic.ID {
			return fmt.Sprintf("topic %s was created anew (its id is %s, the checkpoint is of %s)", topic.Name, topic.ID, was)
		}
	}
	if c.Version == 0 && f.Committed >= 0 {
		return fmt.Sprintf("the group has counted partition %d up to %d, but the changelog %s holds no checkpoint of it: it was created anew or emptied",
			t.log.cfg.ID, f.Committed, table.Name)
	}
	if t.log.start > c.Start { // compaction moves no log's start
		return fmt.Sprintf("the first %d records of the changelog %s/%d were deleted, and counts with them", t.log.start, table.Name, t.log.cfg.ID)
	}
	return ""
}

func (t *Takeover) resumeSource(src Source, c *checkpoint, f Found) error {
	topic := t.log.cfg.Topics.of(src)
	next, was := c.Next[src], c.Topics[topic.Name]
	oldest, newest := f.Oldest[src], f.Newest[src]
	end, cut := int64(0), false
	if was == topic.ID {
		end, cut = t.cutAt(src, c, f.EpochEnd[src])
	}
	switch {
	case c.Version == 0: // no checkpoint yet
		t.log.next[src] = oldest
	case was != topic.ID:
		return t.startAnew(src, oldest, fmt.Sprintf("topic %s was created anew (its id is %s, the counts are of %s)", topic.Name, topic.ID, was),
			"take up the topic from its start")
	case cut:
		// What lies below the cut was counted, and all above is new, whatever offsets it has.
		return t.startAnew(src, end, fmt.Sprintf("topic %s was cut: its partition %d has lost its records from %d on, and was counted up to %d",
			topic.Name, t.log.cfg.ID, end, max(next, t.table.reached(src))), "go on where it was cut")
	case next > newest:
		// What is left was counted; what was appended since at the places that are gone was not,
		// and nothing tells it apart.
		return t.startAnew(src, newest, fmt.Sprintf("topic %s was cut: its partition %d ends at %d, but was counted up to %d",
			topic.Name, t.log.cfg.ID, newest, next), "go on at the topic's end")
	case next < oldest:
		t.log.note(Error, "records were deleted before they were counted", "topic", topic.Name, "records", oldest-next)
		t.log.tally.Lost += uint64(oldest - next)
		t.log.next[src] = oldest
	default:
		t.log.next[src] = next
	}
	return nil
}

// startAnew goes on at an offset of a topic whose offsets have started over, if that is allowed.
func (t *Takeover) startAnew(src Source, at int64, why, how string) error {
	if !t.log.cfg.AcceptNewTopic {
		return fmt.Errorf("%w: %s; start with --accept-new-topic to keep the counts and %s", ErrFinal, why, how)
	}
	t.log.note(Warn, "offsets start over", "topic", t.log.cfg.Topics.of(src).Name, "reason", why, "next_offset", at)
	t.log.accepted = true
	if src == Input {
		t.intake.generation++
	}
	t.table.dropApplied(src)
	t.log.next[src], t.log.epochs.Is[src] = at, NoEpoch
	return nil
}

// cutAt finds whether the log has lost what was counted of it, and from which offset on.
func (t *Takeover) cutAt(src Source, c *checkpoint, is EpochEnd) (at int64, cut bool) {
	if !is.Known || c.Epochs == nil {
		return at, false
	}
	if at, cut := is.cutBelow(src, c, t.reached[src]); !cut {
		return at, false // then it is not cut below less, either, and no key need be looked at
	}
	return is.cutBelow(src, c, t.table.reached(src))
}

// cutBelow finds whether a log has lost what was counted of it: by the checkpoint, and by keys that have
// reached an offset.
func (e EpochEnd) cutBelow(src Source, c *checkpoint, reached int64) (at int64, cut bool) {
	epoch, from := c.Epochs.Is[src], c.Epochs.From[src]
	reached = max(reached, c.Next[src])
	switch {
	case reached <= from:
		// Nothing of the epoch was counted: it does not matter whether the log still has it.
		return e.End, e.End >= 0 && e.End < reached
	case e.Epoch < epoch: // of the epoch nothing is left, and others may have its place
		return min(e.End, from), e.lost(epoch, reached)
	default:
		return e.End, e.lost(epoch, reached)
	}
}
