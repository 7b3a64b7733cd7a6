// Package auditlog reads the audit topic: its entries, their order, what they say in words, and which of them
// concern a key, a rule or a time. Follow keeps the latest of them in memory.
package auditlog

import (
	"encoding/json"
	"fmt"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
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
	Keys    int // how many it concerned, if not Key alone
	Each    [][]event.Dim

	// Of rules that were published.
	Version, From int64 // From is the version whose text this is, after a roll back
	Name, File    string
	Hash          string

	// Of a kill switch.
	Enforcer, EnforcerID, Cause string
	Enabled                     bool
	Since                       event.Micros

	What string // of a read: what was read
}

// Parse is strict with verdicts only: an entry of another type is shown whatever its fields have.
func Parse(data []byte) (*Entry, error) {
	var w map[string]json.RawMessage
	if err := json.Unmarshal(data, &w); err != nil {
		return nil, fmt.Errorf("parse the entry: %w", err)
	}
	e := &Entry{At: event.NoTime, Until: event.NoTime, Since: event.NoTime, Key: parseKey(w["key"])}
	for name, from := range w {
		if to := e.field(name); to != nil {
			_ = json.Unmarshal(from, to) // a field of another type counts as absent
		}
	}
	var each []json.RawMessage
	_ = json.Unmarshal(w["each"], &each) // the same
	for _, key := range each {
		e.Each = append(e.Each, parseKey(key))
	}
	if e.Type == Verdict {
		v, err := verdict.Parse(w["verdict"])
		if err != nil {
			return nil, err
		}
		e.Verdict, e.Key, e.Rule = &v, v.Key, v.Rule
	}
	return e, nil
}

// field returns a pointer to a field's value; nil of those that are read otherwise, or not known.
func (e *Entry) field(name string) any {
	switch name {
	case "type":
		return &e.Type
	case "at":
		return &e.At
	case "by":
		return &e.By
	case "on_behalf_of":
		return &e.For
	case "rule":
		return &e.Rule
	case "reason":
		return &e.Reason
	case "id":
		return &e.ID
	case "command":
		return &e.Command
	case "until":
		return &e.Until
	case "keys":
		return &e.Keys
	}
	return e.laterField(name)
}

// laterField is field for what types have that came later.
func (e *Entry) laterField(name string) any {
	switch name {
	case "version":
		return &e.Version
	case "from":
		return &e.From
	case "name":
		return &e.Name
	case "file":
		return &e.File
	case "hash":
		return &e.Hash
	case "enforcer":
		return &e.Enforcer
	case "enforcer_id":
		return &e.EnforcerID
	case "enabled":
		return &e.Enabled
	case "cause":
		return &e.Cause
	case "since":
		return &e.Since
	case "what":
		return &e.What
	}
	return nil
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
