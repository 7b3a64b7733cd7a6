package shard

import (
	"bytes"
	"fmt"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

// restoring is what a takeover keeps of the changelog beside the keys.
type restoring struct {
	checkpoint *checkpoint // the last one
	leftovers  map[string]leftover
	parts      map[string][]byte // of the table of producers, by key
}

// leftover is what a key's last record says of verdicts that were not yet published.
type leftover struct {
	offset   int64 // of that record: the seq of those without one
	verdicts []unpublished
}

// Load takes in a record of the changelog, in their order; it keeps copies only. Fence records are the owner's own matter; it skips them.
func (s *Shard) Load(offset int64, key, value []byte) error {
	r := s.restoring
	switch {
	case isOwnerRecord(key):
		return s.loadOwnerRecord(key, value)
	case value == nil:
		s.table.Delete(key)
		s.exempt.forget(key)
		delete(r.leftovers, string(key))
		return nil
	}
	pending, raw, err := decodeWire(value)
	if err != nil {
		return err
	}
	b, err := decodeBlock(raw)
	if err != nil {
		return err
	}
	err = rules.CheckState(b.state)
	if err == nil {
		err = s.rules.Set.CheckWindows(b.state)
	}
	if err != nil {
		return fmt.Errorf("state of a key: %w", err)
	}
	s.table.Load(key, raw)
	s.exempt.note(key, b.state)
	if len(pending) > 0 {
		for i := range pending {
			pending[i].body = bytes.Clone(pending[i].body)
		}
		r.leftovers[string(key)] = leftover{offset, pending}
	} else if len(r.leftovers) > 0 {
		delete(r.leftovers, string(key))
	}
	return nil
}

func (s *Shard) loadOwnerRecord(key, value []byte) error {
	switch {
	case string(key) == CheckpointKey:
		c, err := decodeCheckpoint(value)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrFinal, err) // trying again reads the same
		}
		s.restoring.checkpoint = c
	case isPart(key):
		s.restoring.parts[string(key)] = bytes.Clone(value)
	}
	return nil
}

// Restored is what the changelog's last checkpoint says, for an owner who asks Kafka what Resume must know.
type Restored struct {
	Checkpoint bool          // there is one
	Rules      int64         // the version that was counted by
	Epoch      [Sources]bool // Found.EpochEnd is needed, of:
	Of         [Sources]int32
}

// Restored is what was loaded so far.
func (s *Shard) Restored() Restored {
	c := s.restoring.checkpoint
	if c == nil {
		return Restored{}
	}
	r := Restored{Checkpoint: true, Rules: c.RulesAt}
	for src := range Sources {
		t := s.cfg.Topics.of(src)
		if c.Epochs != nil && c.Epochs.Is[src] != NoEpoch && c.Topics[t.Name] == t.ID {
			r.Epoch[src], r.Of[src] = true, c.Epochs.Is[src]
		}
	}
	return r
}

// Found is what the owner found in Kafka at a takeover.
type Found struct {
	ChangelogStart int64
	Oldest, Newest [Sources]int64    // where the sources begin and end
	EpochEnd       [Sources]EpochEnd // where the epochs of Restored end
	Committed      int64             // where there is no checkpoint: the group's offset of the input; -1 is none
	Rules          error             // why the rules are older than those that it was counted by
}

// Resumed is where a partition goes on.
type Resumed struct {
	Seek       bool // the sources are to be read from Next; else there is no checkpoint, and they start at their topics' start
	StartsOver bool // a checkpoint is due before the first event: an owner after a crash would start over once more
}

// Resume finds where to go on in both sources.
func (s *Shard) Resume(f Found, clock Clock) (Resumed, error) {
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
	s.broker = event.NoTime
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

// checkOutputs refuses to go on when what earlier owners wrote is gone: verdicts are ordered
// by offsets of the changelog, and in a new one these start below all that Redis and the
// enforcers have.
func (s *Shard) checkOutputs(c *checkpoint, f Found) (seek bool, err error) {
	why := s.outputsLost(c, f)
	switch {
	case why == "":
	case !s.cfg.AcceptNewTopic:
		return false, fmt.Errorf("%w: %s; start over under another --prefix, or delete %s and the blocklist in Redis too, and start with --accept-new-topic",
			ErrFinal, why, s.cfg.Topics.Verdicts.Name)
	default:
		s.note(Warn, "starting over with the states that are left", "reason", why)
		s.accepted = true
	}
	return c.Version > 0 || why != "", nil
}

// outputsLost says what is gone of the changelog and the verdicts; "" is nothing.
func (s *Shard) outputsLost(c *checkpoint, f Found) (why string) {
	table := s.cfg.Topics.Table
	for _, t := range []Topic{table, s.cfg.Topics.Verdicts} {
		if was := c.Topics[t.Name]; was != "" && was != t.ID {
			return fmt.Sprintf("topic %s was created anew (its id is %s, the checkpoint is of %s)", t.Name, t.ID, was)
		}
	}
	if c.Version == 0 && f.Committed >= 0 {
		return fmt.Sprintf("the group has counted partition %d up to %d, but the changelog %s holds no checkpoint of it: it was created anew or emptied",
			s.cfg.ID, f.Committed, table.Name)
	}
	if s.start > c.Start { // compaction moves no log's start
		return fmt.Sprintf("the first %d records of the changelog %s/%d were deleted, and counts with them", s.start, table.Name, s.cfg.ID)
	}
	return ""
}

func (s *Shard) resumeSource(src Source, c *checkpoint, f Found) error {
	t := s.cfg.Topics.of(src)
	next, was := c.Next[src], c.Topics[t.Name]
	oldest, newest := f.Oldest[src], f.Newest[src]
	end, cut := int64(0), false
	if c.Version > 0 && was == t.ID {
		end, cut = s.cutAt(src, c, f.EpochEnd[src])
	}
	switch {
	case c.Version == 0: // no checkpoint yet
		s.next[src] = oldest
	case was != t.ID:
		return s.startAnew(src, oldest, fmt.Sprintf("topic %s was created anew (its id is %s, the counts are of %s)", t.Name, t.ID, was),
			"take up the topic from its start")
	case cut:
		// What lies below the cut was counted, and all above is new, whatever offsets it has.
		return s.startAnew(src, end, fmt.Sprintf("topic %s was cut: its partition %d has lost its records from %d on, and was counted up to %d",
			t.Name, s.cfg.ID, end, max(next, s.reached(src))), "go on where it was cut")
	case next > newest:
		// What is left was counted; what was appended since at the places that are gone was not,
		// and nothing tells it apart.
		return s.startAnew(src, newest, fmt.Sprintf("topic %s was cut: its partition %d ends at %d, but was counted up to %d", t.Name, s.cfg.ID, newest, next),
			"go on at the topic's end")
	case next < oldest:
		s.note(Error, "records were deleted before they were counted", "topic", t.Name, "records", oldest-next)
		s.tally.Lost += uint64(oldest - next)
		s.next[src] = oldest
	default:
		s.next[src] = next
	}
	return nil
}

// startAnew goes on at an offset of a topic whose offsets have started over, if that is allowed.
func (s *Shard) startAnew(src Source, at int64, why, how string) error {
	if !s.cfg.AcceptNewTopic {
		return fmt.Errorf("%w: %s; start with --accept-new-topic to keep the counts and %s", ErrFinal, why, how)
	}
	s.note(Warn, "offsets start over", "topic", s.cfg.Topics.of(src).Name, "reason", why, "next_offset", at)
	s.accepted = true
	if src == Input {
		s.generation++
	}
	s.dropApplied(src)
	s.next[src], s.epochs.Is[src] = at, NoEpoch
	return nil
}

// dropApplied drops every place in a topic that is no more: in the new one, offsets start
// below all of them, and every event would be taken for a replay.
func (s *Shard) dropApplied(src Source) {
	var keys [][]byte
	for ref := range s.table.All() {
		keys = append(keys, append([]byte(nil), s.table.Key(ref)...))
	}
	for _, key := range keys {
		ref, _ := s.table.Get(key)
		b, err := decodeBlock(s.table.Block(ref))
		if err != nil {
			continue // checked when it was read
		}
		b.applied[src] = applied{}
		s.table.Set(key, append(appendBlockHeader(nil, &b), b.state...))
	}
}

// reached is the offset behind all that any key has counted of a source.
func (s *Shard) reached(src Source) int64 {
	var most int64
	for ref := range s.table.All() {
		if b, err := decodeBlock(s.table.Block(ref)); err == nil { // it was checked when it was read
			most = max(most, b.applied[src].next)
		}
	}
	return most
}

// cutAt finds whether the log has lost what was counted of it, and from which offset on.
func (s *Shard) cutAt(src Source, c *checkpoint, is EpochEnd) (at int64, cut bool) {
	if !is.Known || c.Epochs == nil {
		return 0, false
	}
	epoch, from := c.Epochs.Is[src], c.Epochs.From[src]
	reached := max(c.Next[src], s.reached(src))
	switch {
	case reached <= from: // nothing of the epoch was counted: it does not matter whether the log still has it
		return is.End, is.End >= 0 && is.End < reached
	case is.Epoch < epoch: // of the epoch nothing is left, and others may have its place
		return min(is.End, from), is.lost(epoch, reached)
	default:
		return is.End, is.lost(epoch, reached)
	}
}

// Republish publishes what the owner before has left unpublished, before the first event. Of
// several on one record key the newest stands for all. It ends the takeover.
func (s *Shard) Republish(clock Clock) error {
	leftovers := s.restoring.leftovers
	s.restoring = nil
	for key, l := range leftovers {
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

// forgotten reports whether a command has erased a key, and nothing came since: its block has what was applied, and no state.
func (s *Shard) forgotten(key string) bool {
	ref, known := s.table.Get([]byte(key))
	if !known {
		return false
	}
	b, err := decodeBlock(s.table.Block(ref))
	return err == nil && len(b.state) == 0
}
