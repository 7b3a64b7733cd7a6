package aggregate

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

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

// blown says wherever people look that a rule has gone to shadow mode by itself.
func (p *partition) blown(r *rules.Rule) error {
	const reason = "the rule would block more keys than its fuse lets it: it is in shadow mode here until the rules are loaded again"
	p.agg.metrics.fuses.WithLabelValues(r.Name).Inc()
	p.log.Error(reason, "rule", r.Name, "keys", p.table.Len())
	line, err := json.Marshal(fuseAudit{"fuse", now(), p.agg.instance(), r.Name, p.id, p.table.Len(), reason})
	if err != nil {
		return fmt.Errorf("audit record: %w", err)
	}
	return p.sendAside(p.agg.names.Audit, time.Time{}, []byte(r.Name), line, nil)
}

// blownRules are the rules whose fuses have blown, for the checkpoint. What a crash loses of it comes back
// by itself: the states say which keys are blocked, and the next block is one too many again.
func (p *partition) blownRules() (names []string) {
	for _, r := range p.rules.set.Rules {
		if p.stepper.Fuses.Blown(r) {
			names = append(names, r.Name)
		}
	}
	return names
}

// blowAgain blows the fuses that an owner before has seen blow, if the rules are still the same.
func (p *partition) blowAgain(c *checkpoint) {
	if c.RulesAt != p.rules.number || c.Rules != p.rules.hash() {
		return
	}
	for _, r := range p.rules.set.Rules {
		if slices.Contains(c.Blown, r.Name) {
			p.stepper.Fuses.Blow(r)
			p.log.Warn("the rule's fuse has blown under an owner before: it is in shadow mode here until the rules are loaded again", "rule", r.Name)
		}
	}
}
