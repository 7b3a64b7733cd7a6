package shard

import (
	"bytes"
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/hotkeys"
	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// Shard is one partition's counting. Make it with New.
//
// It is made of parts. Each holds pointers to those that it needs, all of which are above it here.
type Shard struct {
	log      Log
	rules    inUse
	table    table
	levels   Levels
	verdicts Verdicts
	quotas   Quotas
	judge    Judge
	commands commands
	packs    Packs
	intake   intake
	takeover Takeover

	cutting bool // a checkpoint has begun, and is not covered
}

// New returns an empty shard that counts by these rules.
func New(cfg Config, r Rules) *Shard {
	s := &Shard{}
	s.log = Log{
		cfg: cfg, broker: event.NoTime, last: [Sources]event.Micros{event.NoTime, event.NoTime},
		epochs: noEpochs, epochsNoted: noEpochs,
		tally: Tally{Mismatches: map[rules.Mismatch]uint64{}, UnmatchedBy: map[Unmatched]*uint64{}, Misplaced: map[string]Misplaced{}},
	}
	s.table = table{Table: state.New(), issued: issuedVerdicts{}}
	s.levels = Levels{log: &s.log, rules: &s.rules, table: &s.table}
	s.verdicts = Verdicts{log: &s.log, table: &s.table, levels: &s.levels, by: jsonString(cfg.Instance)}
	s.quotas = Quotas{log: &s.log}
	s.judge = Judge{log: &s.log, rules: &s.rules, table: &s.table, levels: &s.levels, verdicts: &s.verdicts, quotas: &s.quotas}
	s.commands = commands{log: &s.log, rules: &s.rules, table: &s.table, levels: &s.levels, verdicts: &s.verdicts, quotas: &s.quotas}
	s.packs = Packs{by: &s.log.cfg, asks: &s.log.out}
	s.intake = intake{
		log: &s.log, rules: &s.rules, table: &s.table, levels: &s.levels, verdicts: &s.verdicts, quotas: &s.quotas,
		judge: &s.judge, commands: &s.commands, packs: &s.packs,
		origins: map[int32]seen{}, producers: producers{own: cfg.ID}, hot: hotkeys.New(cfg.Seed),
		gathered: gathered{table: s.table.Table}, spans: spans{&s.log.cfg, &s.log.out},
	}
	s.takeover = Takeover{
		log: &s.log, rules: &s.rules, table: &s.table, levels: &s.levels, verdicts: &s.verdicts, judge: &s.judge, intake: &s.intake,
		leftovers: map[string]leftover{}, parts: map[string][]byte{},
	}
	s.judge.setRules(r)
	s.judge.judged = judgedBy(r.Set) // nothing is there yet
	return s
}

// Effects returns the work requested since its last Reset.
func (s *Shard) Effects() *Effects { return &s.log.out }

// Tally counts what became of events. Its owner sets it to zero when it has looked.
func (s *Shard) Tally() *Tally { return &s.log.tally }

// Log knows how far the sources are processed.
func (s *Shard) Log() *Log { return &s.log }

// Levels tells those who grant permits what keys have counted under strict limits.
func (s *Shard) Levels() *Levels { return &s.levels }

// Verdicts publishes verdicts, and the ends of blocks that have moved.
func (s *Shard) Verdicts() *Verdicts { return &s.verdicts }

// Quotas publishes what keys have left.
func (s *Shard) Quotas() *Quotas { return &s.quotas }

// Judge changes the rules, and judges keys beside events.
func (s *Shard) Judge() *Judge { return &s.judge }

// Packs packs what is forwarded.
func (s *Shard) Packs() *Packs { return &s.packs }

// Takeover takes over what owners before have written.
func (s *Shard) Takeover() *Takeover { return &s.takeover }

// Hot returns the sketch of keys that get many events.
func (s *Shard) Hot() *hotkeys.Sketch { return s.intake.hot }

// Record takes in the next record of a source. What it counts is gathered until Step; the record
// may be dropped when the effects are carried out.
func (s *Shard) Record(src Source, rec *record.Record, clock Clock) error {
	return s.intake.record(src, rec, clock)
}

// Event takes in an event that is in no record, as from an access log. Its number takes the
// offset's place: each is greater than the one before.
func (s *Shard) Event(e *event.Event, number int64, broker event.Micros, cause verdict.Cause) {
	s.intake.event(e, number, broker, cause)
}

// Gathered reports whether so much is gathered that Step is due.
func (s *Shard) Gathered() bool { return len(s.intake.gathered.steps) >= gatherAtOnce }

// Step applies what is gathered. What lies below next of the source is processed then.
func (s *Shard) Step(src Source, next int64, clock Clock) error {
	if err := s.intake.stepGathered(clock); err != nil {
		return err
	}
	s.log.next[src] = next
	s.log.broker = s.log.Time(clock)
	return nil
}

// Forget drops what is kept of records that are counted: their memory may be used for others. All that was
// gathered is stepped.
func (s *Shard) Forget() { s.intake.forget() }

// Command carries a command out on one of its keys, at a broker's time. What was applied to the key
// stays as it is: which events are in its state does not change, and what of its loop is still to
// come is counted behind the command.
func (s *Shard) Command(c *CommandRecord, key string, at event.Micros) error {
	return s.commands.key(c, key, s.commands.on(c, key, at, s.log.next[Input]), nil)
}

// Acked takes in that an append with this Ack is durable at an offset.
func (s *Shard) Acked(a *Ack, offset int64, clock Clock) { s.verdicts.acked(a, offset, clock) }

// Parts is in how many parts the keys lie; PartOf says in which one a key does. Their order in a
// part is the same for every owner.
const Parts = state.Parts

// PartOf is the part of a key.
func PartOf(key []byte) int { return state.PartOf(key) }

// Keys counts the keys.
func (s *Shard) Keys() int { return s.table.Len() }

// Bytes returns the memory of the keys.
func (s *Shard) Bytes() int64 { return s.table.Bytes() }

// State copies a key's state; nil when there is none.
func (s *Shard) State(key []byte) ([]byte, error) {
	_, b, _, err := s.table.lookUp(key)
	return append([]byte(nil), b.state...), err
}

// KeysBehind copies at most so many keys of a part, behind one of them; "" is before the first.
func (s *Shard) KeysBehind(part int, behind string, most int) (keys [][]byte, more bool) {
	return s.table.Behind(part, []byte(behind), most)
}

// Walk calls visit with keys of a part and their states, from a place in the part on, until it returns false, and
// returns the place to continue at; -1 is the end. visit must keep neither. Places are others once size has changed.
func (s *Shard) Walk(part, place int, visit func(key, state []byte) bool) (next, size int, err error) {
	next = s.table.Walk(part, place, func(ref state.Ref) bool {
		b, bad := decodeBlock(s.table.Block(ref))
		if err = bad; err != nil {
			return false
		}
		return visit(s.table.Key(ref), b.state)
	})
	return next, s.table.Size(part), err
}

// KeysWith appends the keys of a part that have all of these dimensions, each written name=value,
// in the order of their names, but for the key not.
func (s *Shard) KeysWith(dst []string, part int, dims [][]byte, not string) []string {
	for ref := range s.table.Part(part) {
		if key := s.table.Key(ref); hasAll(key, dims) && string(key) != not {
			dst = append(dst, string(key))
		}
	}
	return dst
}

// hasAll reports whether a key's text has all of the dimensions, each written name=value, in the
// order of their names. A uid is the last one of any key that has it: most keys are told by that.
func hasAll(key []byte, dims [][]byte) bool {
	if last := dims[len(dims)-1]; bytes.HasPrefix(last, []byte("uid=")) && !bytes.HasSuffix(key, last) {
		return false
	}
	for d := range bytes.SplitSeq(key, []byte("&")) {
		if len(dims) > 0 && bytes.Equal(d, dims[0]) {
			dims = dims[1:]
		}
	}
	return len(dims) == 0
}

// Exempted are the exemptions by commands that hold for a key at a time: its own, and those of keys whose
// dimensions it has. Without a key they are all that hold then, in no order.
func (s *Shard) Exempted(key []event.Dim, at event.Micros) []Exempted {
	if len(key) == 0 {
		return s.rules.exempt.all(at)
	}
	return s.rules.exempt.with(key, at)
}

// Allowed calls visit with the keys that commands gave limits or grants, and their states, in no order. visit must not
// keep the state.
func (s *Shard) Allowed(visit func(key string, state []byte)) error {
	for key := range s.rules.allowed {
		_, b, _, err := s.table.lookUp([]byte(key))
		if err != nil {
			return err
		}
		visit(key, b.state)
	}
	return nil
}

// Explainer explains a key's state: by the rules that it is counted by, and the exemptions that hold for it.
func (s *Shard) Explainer(key []event.Dim) *rules.Stepper {
	stepper := s.rules.Set.NewStepper()
	var given []rules.Exemptions
	s.rules.exempt.about(key, func(_ string, x rules.Exemptions) bool {
		given = append(given, x)
		return true
	})
	stepper.Exempt = func(l *rules.Limit, _ []event.Dim, at event.Micros) bool {
		return slices.ContainsFunc(given, func(x rules.Exemptions) bool { return x.Spare(l, at) })
	}
	return stepper
}
