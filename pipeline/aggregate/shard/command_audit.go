package shard

import (
	"encoding/json"
	"fmt"

	"github.com/tallygate/tallygate/pipeline/event"
)

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
	Reason  string   `json:"reason"`
	Keys    int      `json:"keys,omitempty"` // that it was carried out on, when that is not Key alone
	Each    []string `json:"each,omitempty"` // these
	ID      string   `json:"id"`
}

// auditKeys is how many bytes of keys an audit record has at most, but for a single key that is longer:
// the topic may take no more than 128 KiB a record.
const auditKeys = 64 << 10

// AuditLines are the command's in the audit topic, given at that time: one, or several if it has more keys
// than fit into one.
func (c *CommandRecord) AuditLines(at event.Micros) (lines [][]byte, err error) {
	line := commandAudit{Type: "command", At: at, By: c.By, OnBehalfOf: c.OnBehalfOf, Command: c.Command, Key: c.Key, Rule: c.Rule, Reason: c.Reason, ID: c.ID}
	if c.For > 0 {
		line.Until = (at + c.For).String()
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

// AuditKey is the key of its records in the audit topic.
func (c *CommandRecord) AuditKey() []byte {
	if c.Key == "" {
		return []byte(c.AllKeys()[0])
	}
	return []byte(c.Key)
}
