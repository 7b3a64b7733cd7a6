package shard

import (
	"encoding/json"
	"fmt"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// CommandKinds are the commands by their names.
var CommandKinds = map[string]rules.CommandKind{
	"block": rules.CommandBlock, "unblock": rules.CommandUnblock, "reset": rules.CommandReset,
	"exempt": rules.CommandExempt, "forget": rules.CommandForget, "limit": rules.CommandLimit, "grant": rules.CommandGrant,
}

// CommandRecord is a command as it is carried out, and as older programs sent it through the loop
// topic.
type CommandRecord struct {
	ID      string       `json:"id"`
	Command string       `json:"command"`
	Key     string       `json:"key"`            // its text, as it was given; "" of a batch
	Keys    []string     `json:"keys,omitempty"` // all keys, when they are not Key alone
	Rule    string       `json:"rule,omitempty"`
	For     event.Micros `json:"for_us,omitempty"`
	Reason  string       `json:"reason"`
	By      string       `json:"by"`

	OnBehalfOf string `json:"on_behalf_of,omitempty"`

	Allow *Allow `json:"allow,omitempty"` // of limit and grant
}

// Allow is a limit or a grant of a command, or the end of one, as rules.Command.Plan has completed it.
type Allow struct {
	ID     string        `json:"id"`
	Amount event.Decimal `json:"amount"` // the limit, 0 is unlimited; or what is granted
	Until  event.Micros  `json:"until"`  // event.NoTime: it has no end
	Ends   bool          `json:"ends,omitempty"`
	Asked  string        `json:"asked,omitempty"`
}

// Apply has a command for rules give it.
func (a *Allow) Apply(cmd *rules.Command) {
	cmd.ID, cmd.Amount, cmd.Until, cmd.Ends, cmd.Asked = a.ID, a.Amount, a.Until, a.Ends, a.Asked
}

// AllKeys are those that the record is carried out on.
func (c *CommandRecord) AllKeys() []string {
	if len(c.Keys) > 0 {
		return c.Keys
	}
	return []string{c.Key}
}

// commands carries commands out on keys.
type commands struct {
	log      *Log
	rules    *inUse
	table    *table
	levels   *Levels
	verdicts *Verdicts
	quotas   *Quotas
}

// on applies a command to one of its keys.
func (cs *commands) on(c *CommandRecord, key string, at event.Micros, offset int64) rules.Command {
	cmd := rules.Command{
		Kind: CommandKinds[c.Command], Rule: c.Rule, At: at, Until: at + c.For,
		Cause: verdict.Cause{ID: c.ID, Partition: cs.log.cfg.ID, Offset: offset},
		Giver: rules.Giver{By: c.By, OnBehalfOf: c.OnBehalfOf, Reason: c.Reason},
	}
	if c.Allow != nil {
		c.Allow.Apply(&cmd)
	}
	if cmd.Kind == rules.CommandExempt && key != c.Key {
		// That it is exempt is in the state of the command's own key.
		cmd.Kind = rules.CommandUnblock
	}
	return cmd
}

// record carries out a command from the loop topic, where older programs put them, on each
// of its keys once: the key's applied offset tells. Its time is the broker's.
func (cs *commands) record(rec *record.Record) error {
	var c CommandRecord
	if err := json.Unmarshal(rec.Value[2:], &c); err != nil {
		cs.log.deadLetter(Loop, rec, nil, fmt.Errorf("a command: %w", err))
		return nil
	}
	if kind, ok := CommandKinds[c.Command]; !ok || kind >= rules.CommandLimit { // older programs gave none of these
		return fmt.Errorf("%w: command %q", ErrNewerFormat, c.Command)
	}
	at := event.FromTime(rec.Time())
	cs.log.broker = max(cs.log.broker, at)
	lines, err := c.AuditLines(at)
	if err != nil {
		return err
	}
	for _, line := range lines { // also when it was carried out before: a crash may have lost it
		cs.log.out.Aux = append(cs.log.out.Aux, Aux{Topic: Audit, Key: c.AuditKey(), Value: line})
	}
	place := applied{rec.Offset + 1, 0}
	for _, key := range c.AllKeys() {
		if err := cs.key(&c, key, cs.on(&c, key, at, rec.Offset), &place); err != nil {
			return err
		}
	}
	return nil
}

// key carries out a command on one key. place is its own in the loop, nil when it did not
// come that way.
func (cs *commands) key(c *CommandRecord, name string, cmd rules.Command, place *applied) error {
	key := []byte(name)
	ref, b, known, err := cs.table.lookUp(key)
	if err != nil {
		return err
	}
	if place != nil && b.applied[Loop].covers(place.next-1, place.index) {
		cs.log.tally.Replayed++
		return nil
	}
	had := len(b.state) > 0
	next, res := cs.rules.stepper.Command(append(cs.rules.scratch[:0], blockHeaderSpace[:]...), b.state, key, cmd)
	cs.rules.noteExemptions(key, next[len(blockHeaderSpace):])
	b.spent = res.SpentAt
	if place != nil {
		b.applied[Loop] = *place
	}
	raw := putBlockHeader(next, &b)
	if known {
		ref = cs.table.Replace(ref, key, raw)
	} else {
		ref = cs.table.Set(key, raw)
	}
	then := followUps{done: &Done{ID: c.ID, Key: name, Had: had}}
	if cmd.Kind == rules.CommandForget {
		then.erase = cs.rules.erased(key, res.Changes)
	}
	if cs.levels.isStrict(key) {
		settles, _ := cs.levels.take(name)
		then.level, then.gone = cs.levels.levelOf(name, next[len(blockHeaderSpace):], settles), cmd.Kind == rules.CommandForget
	}
	cs.quotas.leftByCommand(name, cmd.Kind, cs.rules.stepper.Left(), cmd.At)
	cs.verdicts.issueThen(ref, res.Changes, event.NoTime, then)
	return nil
}

// commandAudit is a command in the audit topic.
type commandAudit struct {
	Type string       `json:"type"`
	At   event.Micros `json:"at"`
	By   string       `json:"by"`

	OnBehalfOf string `json:"on_behalf_of,omitempty"` // as By says

	Command string   `json:"command"`
	Key     string   `json:"key,omitempty"` // as it was given; "" of a batch
	Rule    string   `json:"rule,omitempty"`
	Until   string   `json:"until,omitempty"`
	Given   string   `json:"given,omitempty"`  // of limit and grant: the id of what was given or ended
	Amount  string   `json:"amount,omitempty"` // that limit, or unlimited, or what was granted
	Ends    bool     `json:"ends,omitempty"`   // it was ended
	Asked   string   `json:"asked,omitempty"`  // until when, in the words of who asked
	Reason  string   `json:"reason"`
	Keys    int      `json:"keys,omitempty"` // that it was carried out on, when that is not Key alone
	Each    []string `json:"each,omitempty"` // these
	ID      string   `json:"id"`
}

// auditKeys bounds the bytes of keys in an audit record, but for a single key that is longer: the topic may take no
// more than 128 KiB a record.
const auditKeys = 64 << 10

// AuditLines are the command's in the audit topic, given at that time: one, or several if it has more keys
// than fit into one.
func (c *CommandRecord) AuditLines(at event.Micros) (lines [][]byte, err error) {
	line := commandAudit{Type: "command", At: at, By: c.By, OnBehalfOf: c.OnBehalfOf, Command: c.Command, Key: c.Key, Rule: c.Rule, Reason: c.Reason, ID: c.ID}
	if c.For > 0 {
		line.Until = (at + c.For).String()
	}
	if a := c.Allow; a != nil {
		line.Given, line.Ends, line.Until, line.Asked = a.ID, a.Ends, "", a.Asked
		if !a.Ends {
			line.Until, line.Amount = a.Until.String(), AmountText(c.Command, a.Amount)
		}
	}
	for rest := c.Keys; ; {
		n, size := 0, 0
		for n < len(rest) && (n == 0 || size+len(rest[n]) <= auditKeys) {
			size += len(rest[n])
			n++
		}
		if line.Keys, line.Each = n, rest[:n]; n == 1 && rest[0] == c.Key {
			line.Each = nil
		}
		value, err := json.Marshal(line)
		if err != nil {
			return nil, fmt.Errorf("audit record: %w", err)
		}
		if lines, rest = append(lines, value), rest[n:]; len(rest) == 0 {
			return lines, nil
		}
	}
}

// AmountText is the amount of a limit or a grant in words.
func AmountText(command string, amount event.Decimal) string {
	if CommandKinds[command] == rules.CommandLimit && amount == 0 {
		return "unlimited"
	}
	return amount.String()
}

// AuditKey is the key of its records in the audit topic.
func (c *CommandRecord) AuditKey() []byte {
	if c.Key == "" {
		return []byte(c.AllKeys()[0])
	}
	return []byte(c.Key)
}
