package shard

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/verdict"
)

func describeState(key, value []byte) string {
	switch {
	case string(key) == CheckpointKey:
		c, err := decodeCheckpoint(value)
		if err != nil {
			return err.Error()
		}
		return describeCheckpoint(c)
	case isOwnerRecord(key):
		return fmt.Sprintf("%q", key)
	case value == nil:
		return fmt.Sprintf("tombstone of %s", key)
	}
	pending, raw, err := decodeWire(value)
	if err != nil {
		return err.Error()
	}
	b, err := decodeBlock(raw)
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("state of %s, applied %s and %s", key, describePlace(b.applied[Input]), describePlace(b.applied[Loop]))
	for _, u := range pending {
		v, err := verdict.Parse(u.body)
		if err != nil {
			return err.Error()
		}
		text += fmt.Sprintf(", unpublished: %s of %s", kindOf(&v), v.Rule)
	}
	return text
}

func describePlace(a applied) string {
	if a.index == 0 {
		return fmt.Sprint(a.next)
	}
	return fmt.Sprintf("%d.%d", a.next, a.index)
}

func describeVerdict(key, value []byte) string {
	if isOwnerRecord(key) {
		return "a fence"
	}
	if value == nil {
		return fmt.Sprintf("tombstone of %s", key)
	}
	v, err := verdict.Parse(value)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s of %s on %s, seq %d", kindOf(&v), v.Rule, v.KeyText(), v.Seq)
}

func kindOf(v *verdict.Verdict) string {
	if v.Mode == verdict.Shadow {
		return "shadow " + v.State.String()
	}
	return v.State.String()
}

// describeCheckpoint leaves out what most stories do not have.
func describeCheckpoint(c *checkpoint) string {
	text := fmt.Sprintf("checkpoint: next %d and %d, judged %d of %d", c.Next[Input], c.Next[Loop], c.Judged.Done, Parts)
	for _, more := range []struct {
		what  string
		value any
		has   bool
	}{
		{"epochs", c.Epochs.Is, c.Epochs.Is != noEpochs.Is}, {"since", c.Epochs.From, c.Epochs.Is != noEpochs.Is},
		{"generation", c.Generation, c.Generation != 0}, {"changelog from", c.Start, c.Start != 0}, {"blown", c.Blown, len(c.Blown) > 0},
		{"origins", c.Origins, len(c.Origins) > 0}, {"rules", c.RulesAt, c.RulesAt > 1},
	} {
		if more.has {
			text += fmt.Sprintf(", %s %v", more.what, more.value)
		}
	}
	return text
}

// sayCheckpoint tells what the newest checkpoint of a partition says, beside how far it is.
func (s *stage) sayCheckpoint(id int32) {
	for _, e := range slices.Backward(s.table[id].entries) {
		if string(e.key) == CheckpointKey {
			if _, more, ok := strings.Cut(describeState(e.key, e.value), fmt.Sprintf(" of %d, ", Parts)); ok {
				s.say("  %s", more)
			}
			return
		}
	}
}

// describeArgs are a note's names and values.
func describeArgs(args []any) (text string) {
	for i := 0; i+1 < len(args); i += 2 {
		if name := args[i]; name == "rules_hash" || name == "rules_hash_before" {
			continue // a page is not to depend on it
		}
		text += fmt.Sprintf("; %v %v", args[i], args[i+1])
	}
	return text
}

// sayAux tells of auxiliary output, but for verdicts in the audit: what is published is told
// anyway.
func (s *stage) sayAux(a *Aux) {
	switch {
	case a.Topic == DeadLetters:
		s.say("wants a dead letter: %s, key %q, value %q", a.Reason, a.Key, a.Value)
		for _, h := range a.Headers {
			s.say("  %s: %s", h.Key, h.Value)
		}
	case !strings.HasPrefix(string(a.Value), `{"type":"verdict"`):
		s.say("wants in the audit of %s: %s", a.Key, a.Value)
	default:
		if _, notify, ok := strings.Cut(string(a.Value), `,"notify":`); ok {
			notify, _, _ = strings.Cut(notify, `,"verdict":`)
			s.say("wants in the audit of %s who is told: %s", a.Key, notify)
		}
	}
}

// sayTally writes the counts of events by their fate.
func (s *stage) sayTally(was, is *Tally) {
	before, after := reflect.ValueOf(*was), reflect.ValueOf(*is)
	for i := range before.NumField() {
		name := before.Type().Field(i).Name
		if before.Field(i).Kind() != reflect.Uint64 {
			continue // by limit
		}
		if n := after.Field(i).Uint() - before.Field(i).Uint(); n > 0 {
			said := map[string]string{"Counted": "counts %d", "Replayed": "skips %d that it has applied", "ProducerRepeat": "skips %d that an emitter has sent again"}
			s.say(cmp.Or(said[name], name+": %d"), n)
		}
	}
}

func (s *stage) sayResumed(o *simOwner) {
	if o.resumed.Seek {
		s.say("seeks these offsets")
	}
	if o.resumed.StartsOver {
		s.say("a checkpoint is due before the first event")
	}
	if n := o.s.Tally().Lost; n > 0 {
		s.say("lost %d", n)
	}
}

// config NAME=VALUE …: of the owners to come.
func (s *stage) playConfig(args, _ []string) {
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		switch name {
		case "accept-new-topic":
			s.cfg.AcceptNewTopic = value == "true"
		case "producer-times":
			s.cfg.ProducerTimes = value == "true"
		case "of":
			s.cfg.Of = int32(s.number(value))
		case "max-dead-letter":
			s.cfg.MaxDeadLetter = s.number(value)
		default:
			s.t.Fatalf("no setting %q", name)
		}
	}
	s.say("set")
}

// found NAME=NUMBER …: what owners to come find. An epoch is input-epoch=EPOCH@END.
func (s *stage) playFound(args, _ []string) {
	numbers := map[string]*int64{
		"changelog-start": &s.found.ChangelogStart, "committed": &s.found.Committed,
		"input-oldest": &s.found.Oldest[Input], "loop-oldest": &s.found.Oldest[Loop],
	}
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		if end := map[string]*EpochEnd{"input-epoch": &s.found.EpochEnd[Input], "loop-epoch": &s.found.EpochEnd[Loop]}[name]; end != nil {
			end.Known = true
			if _, err := fmt.Sscanf(value, "%d@%d", &end.Epoch, &end.End); err != nil {
				s.t.Fatal(a, err)
			}
		} else if name == "rules" {
			s.found.Rules = errors.New(value)
		} else {
			*numbers[name] = int64(s.number(value))
		}
	}
	s.say("found")
}

// topic input|loop|table|verdicts ID: it was deleted, and created anew.
func (s *stage) playTopic(args, _ []string) {
	topic, logs := &s.cfg.Topics.Events, &s.input
	switch args[0] {
	case "loop":
		topic, logs = &s.cfg.Topics.Loop, &s.loop
	case "table":
		topic, logs = &s.cfg.Topics.Table, nil // its states are read all the same
	case "verdicts":
		topic, logs = &s.cfg.Topics.Verdicts, &s.verdicts
	}
	topic.ID = args[1]
	if logs != nil {
		for p := range logs {
			logs[p] = &simLog{}
		}
	}
	s.say("topic %s has id %s", topic.Name, topic.ID)
}

// raw PARTITION input|loop|table [key=KEY] [prefix=HEX] [HEADER=VALUE] …, and the value.
func (s *stage) playRaw(args, input []string) {
	e := simEntry{at: s.now}
	headers := [][]byte{}
	for _, a := range args[2:] {
		name, value, _ := strings.Cut(a, "=")
		switch name {
		case "key":
			e.key = []byte(value)
		case "prefix":
			prefix, err := hex.DecodeString(value)
			if err != nil {
				s.t.Fatal(err)
			}
			e.value = prefix
		default:
			headers = append(headers, []byte(name), []byte(value))
		}
	}
	e.value, e.headers = append(e.value, strings.Join(input, "\n")...), record.HeadersOf(headers...)
	log := map[string]*[simPartitions]*simLog{"input": &s.input, "loop": &s.loop, "table": &s.table}[args[1]][s.number(args[0])]
	offset, _ := log.append(-1, 0, e)
	s.say("%s %s at %d", args[1], args[0], offset)
}

// cut PARTITION OFFSET: the input loses its records from there on.
func (s *stage) playCut(args, _ []string) {
	log := s.input[s.number(args[0])]
	log.entries = log.entries[:s.number(args[1])]
	s.say("ends at %d", log.end())
}

// epoch NAME input|loop [EPOCH]: another leader has taken what comes next.
func (s *stage) playEpoch(args, _ []string) {
	o, src := s.owner(args[0]), s.source(args[1])
	if len(args) > 2 {
		o.s.log.EnterEpoch(src, int32(s.number(args[2])))
	}
	next, behind := o.s.log.Behind(src)
	s.say("in epoch %d; what lies below %d is of epoch %d", o.s.log.Epoch(src), next, behind)
}

// unreadable NAME FIRST LAST REASON: a range of the input.
func (s *stage) playUnreadable(args, _ []string) {
	o := s.owner(args[0])
	bad := Unreadable{First: int64(s.number(args[1])), Last: int64(s.number(args[2])), TooLarge: args[3] == "too-large", Why: errors.New(args[3]), Detail: args[3]}
	behind, n := o.s.log.PassOver(Input, o.s.log.Next(Input), bad)
	o.must(o.s.Step(Input, behind, o.clock()))
	s.say("passed over %d, goes on at %d", n, o.s.log.Next(Input))
	s.asked(o)
}

// sweep NAME: all keys.
func (s *stage) playSweep(args, _ []string) {
	o := s.owner(args[0])
	n := 0
	for range 256 { // each looks at some places only
		left, err := o.s.judge.Sweep(o.clock())
		o.must(err)
		n += left
	}
	s.say("%d keys leave, %d stay", n, o.s.Keys())
	s.asked(o)
}

// ends NAME [all]: publishes those of moved blocks that are due.
func (s *stage) playEnds(args, _ []string) {
	o, all := s.owner(args[0]), len(args) > 1
	s.say("%d wait", o.s.verdicts.EndsWaiting())
	for _, key := range o.s.verdicts.EndsDue(all, o.clock()) {
		o.s.verdicts.PublishEnds(key, all, o.clock())
	}
	s.asked(o)
}

// command NAME COMMAND KEY [RULE [AMOUNT ID]]: on all keys that have the dimensions of KEY.
func (s *stage) playCommand(args, _ []string) {
	o := s.owner(args[0])
	c := CommandRecord{ID: "c1", Command: args[1], Key: args[2], Reason: "a test", By: "tester"}
	if args[1] == "block" || args[1] == "exempt" {
		c.For = event.Hour
	}
	if len(args) > 3 {
		c.Rule = args[3]
	}
	if len(args) > 5 {
		amount, err := event.ParseDecimal(args[4])
		o.must(err)
		c.Allow = &Allow{ID: args[5], Amount: amount, Until: s.now + event.Hour, Ends: amount == 0}
		o.must(o.s.Command(&c, c.Key, s.now))
		s.asked(o)
		return
	}
	keys := []string{c.Key}
	for part := range Parts {
		keys = o.s.KeysWith(keys, part, [][]byte{[]byte(c.Key)}, c.Key)
	}
	for _, key := range keys {
		o.must(o.s.Command(&c, key, s.now))
	}
	s.asked(o)
}

// later DURATION
func (s *stage) playLater(args, _ []string) {
	d, err := time.ParseDuration(args[0])
	if err != nil {
		s.t.Fatal(err)
	}
	s.now += event.FromDuration(d)
	s.say("it is %v", cmp.Or(s.now, 0))
}
