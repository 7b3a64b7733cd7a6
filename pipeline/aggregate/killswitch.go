package aggregate

import (
	"time"

	"github.com/tallygate/tallygate/event"
)

// KillSwitch says that an enforcer's kill switch was turned.
type KillSwitch struct {
	Enforcer string    // its name
	ID       string    // of its process
	Enabled  bool      // false: it allows everything
	Cause    string    // of one that is off
	Since    time.Time // by its clock; zero is unknown
}

// killSwitchAudit is a KillSwitch in the audit topic.
type killSwitchAudit struct {
	Type       string        `json:"type"`
	At         event.Micros  `json:"at"`
	By         string        `json:"by"`
	Enforcer   string        `json:"enforcer"`
	EnforcerID string        `json:"enforcer_id"`
	Enabled    bool          `json:"enabled"`
	Cause      string        `json:"cause,omitempty"`
	Since      *event.Micros `json:"since,omitempty"`
}

// AuditKillSwitch writes an entry about an enforcer. It does not wait until Kafka has it.
func (a *Aggregator) AuditKillSwitch(k KillSwitch) {
	e := killSwitchAudit{Type: "kill-switch", At: now(), By: a.name(), Enforcer: k.Enforcer, EnforcerID: k.ID, Enabled: k.Enabled, Cause: k.Cause}
	if !k.Since.IsZero() {
		since := event.FromTime(k.Since)
		e.Since = &since
	}
	a.audits.owe("kill-switch", e)
}

// Owns reports whether this instance has a partition now.
func (a *Aggregator) Owns(partition int32) bool { return asked{a.instance}.Part(partition) != nil }
