package shard

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
)

// fuseAudit is a blown fuse in the audit topic.
type fuseAudit struct {
	Type      string       `json:"type"`
	At        event.Micros `json:"at"`
	By        string       `json:"by"`
	Rule      string       `json:"rule"`
	Partition int32        `json:"partition"`
	Keys      int          `json:"keys"` // that the partition had
	Reason    string       `json:"reason"`
}

// blown says wherever people look that a rule has gone to shadow mode by itself, of so many keys.
func (j *Judge) blown(r *rules.Rule, active int, clock Clock) error {
	const reason = "the rule would block more keys than its fuse allows; it is in shadow mode here until changed rules are loaded"
	j.log.out.Blown = append(j.log.out.Blown, Blown{r.Name, active})
	j.log.note(Error, reason, "rule", r.Name, "keys", active)
	line, err := json.Marshal(fuseAudit{"fuse", clock.Local, j.log.cfg.Instance, r.Name, j.log.cfg.ID, active, reason})
	if err != nil {
		return fmt.Errorf("audit record: %w", err)
	}
	j.log.out.Aux = append(j.log.out.Aux, Aux{Topic: Audit, Key: []byte(r.Name), Value: line})
	return nil
}

// BlownRules are the rules whose fuses have blown, for the checkpoint. What a crash loses of it
// comes back by itself: the states say which keys are blocked, and the next block is one too many
// again.
func (j *Judge) BlownRules() (names []string) {
	for _, r := range j.rules.Set.Rules {
		if j.rules.stepper.Fuses.Blown(r) {
			names = append(names, r.Name)
		}
	}
	return names
}

// blowAgain blows the fuses that an owner before has seen blow, if the rules are still the same.
func (j *Judge) blowAgain(c *checkpoint) {
	if c.RulesAt != j.rules.Number || c.Rules != j.rules.hash() {
		return
	}
	for _, r := range j.rules.Set.Rules {
		if slices.Contains(c.Blown, r.Name) {
			j.rules.stepper.Fuses.Blow(r)
			j.log.note(Warn, "the rule's fuse had blown under a previous owner; the rule stays in shadow mode here until changed rules are loaded", "rule", r.Name)
		}
	}
}

// noteBlocks tells the rules' fuses which keys are blocked.
func (j *Judge) noteBlocks() error {
	if j.rules.stepper.Fuses == nil {
		return nil
	}
	for ref := range j.table.All() {
		b, err := decodeBlock(j.table.Block(ref))
		if err != nil {
			return err
		}
		j.rules.stepper.NoteState(b.state, j.table.Key(ref))
	}
	return nil
}
