package shard

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tallygate/tallygate/pipeline/event"
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
func (s *judging) blown(r *rules.Rule, active int, clock Clock) error {
	const reason = "the rule would block more keys than its fuse allows; it is in shadow mode here until changed rules are loaded"
	s.out.Blown = append(s.out.Blown, Blown{r.Name, active})
	s.note(Error, reason, "rule", r.Name, "keys", active)
	line, err := json.Marshal(fuseAudit{"fuse", clock.Local, s.cfg.Instance, r.Name, s.cfg.ID, active, reason})
	if err != nil {
		return fmt.Errorf("audit record: %w", err)
	}
	s.out.Aux = append(s.out.Aux, Aux{Topic: Audit, Key: []byte(r.Name), Value: line})
	return nil
}

// BlownRules are the rules whose fuses have blown, for the checkpoint. What a crash loses of it
// comes back by itself: the states say which keys are blocked, and the next block is one too many
// again.
func (s *judging) BlownRules() (names []string) {
	for _, r := range s.rules.Set.Rules {
		if s.stepper.Fuses.Blown(r) {
			names = append(names, r.Name)
		}
	}
	return names
}

// blowAgain blows the fuses that an owner before has seen blow, if the rules are still the same.
func (s *judging) blowAgain(c *checkpoint) {
	if c.RulesAt != s.rules.Number || c.Rules != s.rules.hash() {
		return
	}
	for _, r := range s.rules.Set.Rules {
		if slices.Contains(c.Blown, r.Name) {
			s.stepper.Fuses.Blow(r)
			s.note(Warn, "the rule's fuse had blown under a previous owner; the rule stays in shadow mode here until changed rules are loaded", "rule", r.Name)
		}
	}
}

// noteBlocks tells the rules' fuses which keys are blocked.
func (s *judging) noteBlocks() error {
	if s.stepper.Fuses == nil {
		return nil
	}
	for ref := range s.table.All() {
		b, err := decodeBlock(s.table.Block(ref))
		if err != nil {
			return err
		}
		s.stepper.NoteState(b.state, s.table.Key(ref))
	}
	return nil
}
