package aggregate

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/retry"
)

// audits are entries about what has happened already, such as a publication of rules: nobody waits until Kafka has
// them. They are kept in memory until then, so that a crash may lose some.
type audits struct {
	mu   sync.Mutex
	owed []auditEntry // oldest first
	some chan struct{}
}

type auditEntry struct {
	key   string
	entry any
}

const (
	// maxOwed bounds the entries that wait; without Kafka there is nothing that would make many.
	maxOwed = 1000
	// auditAgain is the wait before an entry that Kafka refuses is tried again.
	auditAgain = 10 * time.Second
	// auditRest bounds a stop's wait for entries.
	auditRest = time.Second
)

// owe notes an entry. It does not block.
func (q *audits) owe(key string, entry any) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.owed) == maxOwed {
		q.owed = q.owed[1:]
	}
	q.owed = append(q.owed, auditEntry{key, entry})
	select {
	case q.some <- struct{}{}:
	default:
	}
}

func (q *audits) first() (e auditEntry, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.owed) == 0 {
		return e, false
	}
	return q.owed[0], true
}

func (q *audits) written() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.owed = q.owed[1:]
}

// run writes the entries, in order, until ctx ends, and then those that are left, if Kafka takes them soon.
func (q *audits) run(ctx context.Context, log *slog.Logger, write func(context.Context, string, any) error) {
	defer func() {
		rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditRest)
		defer cancel()
		for e, ok := q.first(); ok && write(rest, e.key, e.entry) == nil; e, ok = q.first() {
			q.written()
		}
	}()
	for ctx.Err() == nil {
		e, ok := q.first()
		if !ok {
			select {
			case <-q.some:
			case <-ctx.Done():
			}
			continue
		}
		err := write(ctx, e.key, e.entry)
		if err != nil && ctx.Err() != nil {
			return
		}
		if err != nil {
			log.Error("an entry for the audit was not written; retrying", "error", err, "retry_seconds", auditAgain.Seconds())
			if !retry.Sleep(ctx, auditAgain) {
				return
			}
			continue
		}
		q.written()
	}
}

// writeAudit writes an entry, and returns when it is durable.
func (a *instance) writeAudit(ctx context.Context, key string, entry any) error {
	value, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	return a.aux.SendAndWait(ctx, a.names.Audit, []byte(key), value)
}

// rulesAudit is a published version of the rules in the audit topic.
type rulesAudit struct {
	Type       string       `json:"type"`
	At         event.Micros `json:"at"`
	By         string       `json:"by"`
	OnBehalfOf string       `json:"on_behalf_of,omitempty"`
	Version    int64        `json:"version"`
	Name       string       `json:"name"`
	File       string       `json:"file"`
	Hash       string       `json:"hash"`
	From       int64        `json:"from,omitempty"`
	Reason     string       `json:"reason,omitempty"`
}

func (r *ruleRecord) audit(version int64) rulesAudit {
	return rulesAudit{
		Type: "rules", At: event.FromTime(r.At), By: r.By, OnBehalfOf: r.OnBehalfOf,
		Version: version, Name: r.Name, File: r.File, Hash: r.Hash, From: r.From, Reason: r.Reason,
	}
}
