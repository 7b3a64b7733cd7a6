package aggregate

import (
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

// resume finds where to go on in the input and in the loop partition.
func (p *partition) resume(c *checkpoint) error {
	if c == nil {
		c = &checkpoint{}
	}
	if c.Version > 0 {
		last := *c
		last.Judged = nil
		var err error
		if p.lastCheckpointBody, err = last.encode(); err != nil {
			return err
		}
	}
	if err := p.checkOutputs(c); err != nil {
		return err
	}
	if err := p.checkRules(c); err != nil {
		return err
	}
	if err := c.restore(p); err != nil {
		return err
	}
	for l, topic := range []string{inputLane: p.agg.names.Events, loopLane: p.agg.names.Loop} {
		if err := p.resumeLane(lane(l), topic, c); err != nil {
			return err
		}
		// Where records were deleted, the next checkpoint says so, even if nothing is counted.
		p.covered[l] = p.next[l]
		if c.Version > 0 {
			p.covered[l] = min(p.next[l], c.Next[l])
		}
	}
	p.blowAgain(c)
	if err := p.restoreJudged(c); err != nil {
		return err
	}
	if is := p.rules.hash(); c.Rules != "" && c.Rules != is {
		p.log.Info("this partition was last counted by another rule set: what only that one had is dropped, what is new starts empty",
			"rules_hash", is, "rules_hash_before", c.Rules)
	}
	return nil
}

// checkOutputs refuses to go on when what earlier owners wrote is gone: verdicts are ordered
// by offsets of the changelog, and in a new one these start below all that Redis and the
// enforcers have.
func (p *partition) checkOutputs(c *checkpoint) error {
	why, err := p.outputsLost(c)
	if err != nil {
		return err
	}
	switch {
	case why == "":
	case !p.agg.cfg.AcceptNewTopic:
		return fmt.Errorf("%w: %s; start over under another --prefix, or delete %s and the blocklist in Redis too, and start with --accept-new-topic",
			errFatal, why, p.agg.names.Verdicts)
	default:
		p.log.Warn("starting over with what is left", "reason", why)
		p.accepted = true
	}
	p.seeks = c.Version > 0 || why != ""
	return nil
}

// outputsLost says what is gone of the changelog and the verdicts; "" is nothing.
func (p *partition) outputsLost(c *checkpoint) (why string, err error) {
	for _, topic := range []string{p.agg.names.Table, p.agg.names.Verdicts} {
		if id, was := p.topicID(topic), c.Topics[topic]; was != "" && was != id {
			return fmt.Sprintf("topic %s was created anew (its id is %s, the checkpoint is of %s)", topic, id, was), nil
		}
	}
	if c.Version == 0 {
		committed, err := p.committed()
		if err != nil {
			return "", err
		}
		if committed >= 0 {
			return fmt.Sprintf("the group has counted partition %d up to %d, but the changelog %s holds no checkpoint of it: it was created anew or emptied",
				p.id, committed, p.agg.names.Table), nil
		}
	}
	if p.start > c.Start { // compaction moves no log's start
		return fmt.Sprintf("the first %d records of the changelog %s/%d were deleted, and counts with them", p.start, p.agg.names.Table, p.id), nil
	}
	return "", nil
}

// committed is the offset of the event partition that the group has committed, -1 if none.
// Only checkpoints commit.
func (p *partition) committed() (int64, error) {
	admin, err := sarama.NewClusterAdminFromClient(p.agg.clients.bulk)
	if err != nil {
		return -1, fmt.Errorf("ask for the group's offsets: %w", err)
	}
	ask := func() (*sarama.OffsetFetchResponse, error) {
		return admin.ListConsumerGroupOffsets(p.agg.names.Group, map[string][]int32{p.agg.names.Events: {p.id}})
	}
	offsets, err := ask()
	if err != nil { // the coordinator that sarama remembers may be gone
		_ = p.agg.clients.bulk.RefreshCoordinator(p.agg.names.Group)
		offsets, err = ask()
	}
	if err == nil && !errors.Is(offsets.Err, sarama.ErrNoError) {
		err = offsets.Err
	}
	if err != nil {
		return -1, fmt.Errorf("ask for the group's offsets: %w", err)
	}
	switch block := offsets.GetBlock(p.agg.names.Events, p.id); {
	case block == nil:
		return -1, nil
	case !errors.Is(block.Err, sarama.ErrNoError):
		return -1, fmt.Errorf("ask for the group's offsets: %w", block.Err)
	default:
		return block.Offset, nil
	}
}

func (p *partition) resumeLane(l lane, topic string, c *checkpoint) error {
	oldest, err := p.agg.clients.bulk.GetOffset(topic, p.id, sarama.OffsetOldest)
	if err != nil {
		return fmt.Errorf("find the start of %s: %w", topic, err)
	}
	newest, err := p.agg.clients.bulk.GetOffset(topic, p.id, sarama.OffsetNewest)
	if err != nil {
		return fmt.Errorf("find the end of %s: %w", topic, err)
	}
	next := c.Next[l]
	id, was := p.topicID(topic), c.Topics[topic]
	var end int64
	var cut bool
	if c.Version > 0 && was == id {
		if end, cut, err = p.cutAt(l, topic, c); err != nil {
			return err
		}
	}
	switch {
	case c.Version == 0: // no checkpoint yet
		p.next[l] = oldest
	case was != id:
		return p.startAnew(l, oldest, fmt.Sprintf("topic %s was created anew (its id is %s, the counts are of %s)", topic, id, was),
			"take up the topic from its start")
	case cut:
		// What lies below the cut was counted, and all above is new, whatever offsets it has.
		return p.startAnew(l, end, fmt.Sprintf("topic %s was cut: its partition %d has lost its records from %d on, and was counted up to %d",
			topic, p.id, end, max(next, p.reached(l))), "go on where it was cut")
	case next > newest:
		// What is left was counted; what was appended since at the places that are gone was not,
		// and nothing tells it apart.
		return p.startAnew(l, newest, fmt.Sprintf("topic %s was cut: its partition %d ends at %d, but was counted up to %d", topic, p.id, newest, next),
			"go on at the topic's end")
	case next < oldest:
		p.log.Error("records were deleted before they were counted", "topic", topic, "records", oldest-next)
		p.agg.metrics.lost.Add(float64(oldest - next))
		p.next[l] = oldest
	default:
		p.next[l] = next
	}
	return nil
}

// startAnew goes on at an offset of a topic whose offsets have started over, if that is allowed.
func (p *partition) startAnew(l lane, at int64, why, how string) error {
	if !p.agg.cfg.AcceptNewTopic {
		return fmt.Errorf("%w: %s; start with --accept-new-topic to keep the counts and %s", errFatal, why, how)
	}
	p.log.Warn("offsets start over", "topic", p.topicOf(l), "reason", why, "next_offset", at)
	p.accepted = true
	if l == inputLane {
		p.generation++
	}
	p.dropMarks(l)
	p.next[l], p.epochs.Is[l] = at, noEpoch
	return nil
}

// dropMarks forgets every place in a topic that is no more: in the new one, offsets start
// below all of them, and every event would be taken for a replay.
func (p *partition) dropMarks(l lane) {
	var keys [][]byte
	for ref := range p.table.All() {
		keys = append(keys, append([]byte(nil), p.table.Key(ref)...))
	}
	for _, key := range keys {
		ref, _ := p.table.Get(key)
		b, err := decodeBlock(p.table.Block(ref))
		if err != nil {
			continue // checked when it was read
		}
		b.marks[l] = mark{}
		raw := append(appendBlockHeader(nil, &b), b.state...)
		p.table.Set(key, raw)
	}
}

// topicID is Kafka's id of a topic, as it was when the session began. No other topic of the
// same name will ever have it.
func (p *partition) topicID(topic string) string {
	id := p.session.topics[topic].ID
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// ownTopics are those that cannot be replaced by another of the same name in silence.
func ownTopics(n topics.Names) []string {
	return []string{n.Events, n.Loop, n.Table, n.Verdicts}
}
