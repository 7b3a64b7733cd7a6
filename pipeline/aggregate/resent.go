package aggregate

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"

	"github.com/tallygate/tallygate/pipeline/event"
)

// Resent is what somebody is about to send again of the dead letters, for the audit.
type Resent struct {
	By, OnBehalfOf  string // as the caller says; a known actor's name is By all the same
	Now             bool   // without their own times
	Letters, Events int
	Records         []ResentRecords
}

// ResentRecords are those of one partition that the letters are about.
type ResentRecords struct {
	Topic      string `json:"topic"`
	Partition  int32  `json:"partition"`
	Letters    int    `json:"letters"`
	Offset     int64  `json:"offset"`      // the first
	LastOffset int64  `json:"last_offset"` // letters of this partition lie between the two, maybe with gaps
}

// resentAudit is that in the audit topic.
type resentAudit struct {
	Type string       `json:"type"`
	At   event.Micros `json:"at"`
	By   string       `json:"by"`

	OnBehalfOf string `json:"on_behalf_of,omitempty"` // as By says

	Letters int             `json:"letters"`
	Events  int             `json:"events"`
	Now     bool            `json:"now,omitempty"`
	Records []ResentRecords `json:"records,omitempty"`
	ID      string          `json:"id"`
}

// resentType is the type of such an entry, and its record's key: so all of them are in their order.
const resentType = "dead-letters"

// AuditResent puts into the audit that ctx's actor sends dead letters again, and returns when it is durable there. What
// is sent then is the caller's to do.
func (a *api) AuditResent(ctx context.Context, r Resent) (id string, err error) {
	if !a.online.Load() {
		return "", ErrNotConnected
	}
	actor := actorOf(ctx)
	line := resentAudit{Type: resentType, At: now(), Letters: r.Letters, Events: r.Events, Now: r.Now, Records: r.Records, ID: rand.Text()}
	line.By, line.OnBehalfOf = actor.who(r.By, r.OnBehalfOf)
	value, err := json.Marshal(line)
	if err != nil {
		return "", fmt.Errorf("audit record: %w", err)
	}
	if err := a.aux.SendAndWait(ctx, a.names.Audit, []byte(resentType), value); err != nil {
		return "", fmt.Errorf("write to the audit: %w", err)
	}
	return line.ID, nil
}
