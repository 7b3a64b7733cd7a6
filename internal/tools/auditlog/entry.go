// Package auditlog reads the audit topic: its entries, their order, what they say in words, and which of them
// concern a key, a rule or a time. Follow keeps the latest of them in memory.
package auditlog

import (
	"encoding/json"
	"fmt"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// The types of entries.
const (
	Verdict     = "verdict"
	Command     = "command"
	Fuse        = "fuse"
	DeadLetters = "dead-letters"
	Rules       = "rules"
	KillSwitch  = "kill-switch"
	Read        = "read"
)

// Types are those that this version knows, in the order in which pages list them.
func Types() []string {
	return []string{Verdict, Command, Rules, Fuse, KillSwitch, DeadLetters, Read}
}

// Entry is a record of the audit topic. Every type has Type, At and By; entries of all types are found by
// their key and rule.
type Entry struct {
	Type    string
	At      event.Micros // NoTime if absent
	By      string
	For     string           // on whose behalf, according to By
	Verdict *verdict.Verdict // of a verdict

	Key    []event.Dim
	Rule   string // of a verdict also its limit: rule/limit
	Reason string
	ID     string

	// Of a command.
	Command string
	Until   event.Micros
	// Of the commands limit and grant. A replay gives the same again from these alone.
	Given  string // the id of a limit or a grant
	Amount string // that limit, or unlimited, or what was granted
	Ends   bool   // it ended that
	Asked  string // until when, in the words of who asked
	Keys   int    // how many it concerned, if not Key alone
	Each   [][]event.Dim

	// Of rules that were published.
	Version, From int64 // From is the version whose text this is, after a roll back
	Name, File    string
	Hash          string

	// Of a kill switch.
	Enforcer, EnforcerID, Cause string
	Enabled                     bool
	Since                       event.Micros

	What string // of a read: what was read

	Partition       int32           // of a fuse
	Letters, Events int             // of dead letters that were sent again
	Notify          json.RawMessage // of a verdict: true, or the routes that are told
}

// Parse is strict with verdicts only: an entry of another type is shown whatever its fields have.
func Parse(data []byte) (*Entry, error) {
	e, of, err := ParseFields(data)
	if err == nil && e.Type == Verdict {
		v, err := verdict.Parse(of)
		if err != nil {
			return nil, err
		}
		e.Verdict, e.Key, e.Rule = &v, v.Key, v.Rule
	}
	return e, err
}

// ParseFields is Parse without the verdict, which it returns as it came: who shows none need not understand it.
func ParseFields(data []byte) (e *Entry, of json.RawMessage, err error) {
	var w map[string]json.RawMessage
	if err := json.Unmarshal(data, &w); err != nil {
		return nil, nil, fmt.Errorf("parse the entry: %w", err)
	}
	e = &Entry{At: event.NoTime, Until: event.NoTime, Since: event.NoTime, Key: parseKey(w["key"]), Notify: w["notify"]}
	for name, into := range map[string]any{
		"type": &e.Type, "at": &e.At, "by": &e.By, "on_behalf_of": &e.For, "rule": &e.Rule, "reason": &e.Reason, "id": &e.ID,
		"command": &e.Command, "until": &e.Until,
		"given": &e.Given, "amount": &e.Amount, "ends": &e.Ends, "asked": &e.Asked, "keys": &e.Keys, "version": &e.Version, "from": &e.From, "name": &e.Name,
		"file": &e.File, "hash": &e.Hash, "enforcer": &e.Enforcer, "enforcer_id": &e.EnforcerID, "enabled": &e.Enabled,
		"cause": &e.Cause, "since": &e.Since, "what": &e.What, "partition": &e.Partition, "letters": &e.Letters, "events": &e.Events,
	} {
		if raw, there := w[name]; there {
			_ = json.Unmarshal(raw, into) // a field of another type counts as absent
		}
	}
	var each []json.RawMessage
	_ = json.Unmarshal(w["each"], &each) // the same
	for _, key := range each {
		e.Each = append(e.Each, parseKey(key))
	}
	return e, w["verdict"], nil
}

// parseKey parses a key, written as an object or as a record key's text. Nil is no key.
func parseKey(data json.RawMessage) (key []event.Dim) {
	var text string
	var dims map[string]string
	switch {
	case len(data) == 0:
	case json.Unmarshal(data, &text) == nil:
		key, _ = event.ParseKey([]byte(text))
	case json.Unmarshal(data, &dims) == nil:
		for name, value := range dims {
			key = append(key, event.Dim{Name: name, Value: value})
		}
	}
	return key
}
