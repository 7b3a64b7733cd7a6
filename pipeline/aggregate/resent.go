package aggregate

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
)

// Resent describes dead letters that are about to be sent again, for the audit.
type Resent struct {
	By, OnBehalfOf  string // as the caller states; an authenticated actor's name replaces By
	Now             bool   // their own times are dropped
	Letters, Events int
	Records         []ResentRecords
}

// ResentRecords are the original records of one partition that the letters are about.
type ResentRecords struct {
	Topic      string `json:"topic"`
	Partition  int32  `json:"partition"`
	Letters    int    `json:"letters"`
	Offset     int64  `json:"offset"`      // the first
	LastOffset int64  `json:"last_offset"` // the last; there may be gaps in between
}

// resentAudit is its entry in the audit topic.
type resentAudit struct {
	Type string       `json:"type"`
	At   event.Micros `json:"at"`
	By   string       `json:"by"`

	OnBehalfOf string `json:"on_behalf_of,omitempty"` // as By states

	Letters int             `json:"letters"`
	Events  int             `json:"events"`
	Now     bool            `json:"now,omitempty"`
	Records []ResentRecords `json:"records,omitempty"`
	ID      string          `json:"id"`
}

// resentType is the type of such an entry, and the key of its record, which keeps all of them in
// order.
const resentType = "dead-letters"

// AuditResent records in the audit that ctx's actor sends dead letters again, and returns when that
// is durable. The caller then sends them.
func (a *Aggregator) AuditResent(ctx context.Context, r Resent) (id string, err error) {
	if !a.online.Load() {
		return "", ErrNotConnected
	}
	actor := ask.ActorOf(ctx)
	line := resentAudit{Type: resentType, At: now(), Letters: r.Letters, Events: r.Events, Now: r.Now, Records: r.Records, ID: rand.Text()}
	line.By, line.OnBehalfOf = actor.Who(r.By, r.OnBehalfOf)
	if err := a.writeAudit(ctx, resentType, line); err != nil {
		return "", fmt.Errorf("write to the audit: %w", err)
	}
	return line.ID, nil
}
