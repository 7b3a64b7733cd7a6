package shard

import (
	"fmt"
)

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
	if was == t.ID {
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
		if b, err := decodeBlock(s.table.Block(ref)); err == nil { // checked when it was read
			most = max(most, b.applied[src].next)
		}
	}
	return most
}

// cutAt finds whether the log has lost what was counted of it, and from which offset on.
func (s *Shard) cutAt(src Source, c *checkpoint, is EpochEnd) (at int64, cut bool) {
	if !is.Known || c.Epochs == nil {
		return at, false
	}
	if at, cut := is.cutBelow(src, c, s.restoring.reached[src]); !cut {
		return at, false // then it is not cut below less, either, and no key need be looked at
	}
	return is.cutBelow(src, c, s.reached(src))
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
