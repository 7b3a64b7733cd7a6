// Package grouprules reads the versions of a group's rules as an aggregator answers with them.
package grouprules

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/tallygate/tallygate/rules"
)

// Version is the answer to GET /v1/rules: a version of the group's rules, as it was published.
type Version struct {
	Version    int64             `json:"version"`
	Hash       string            `json:"hash"`
	Name       string            `json:"name"` // the set's
	File       string            `json:"file"`
	Modified   time.Time         `json:"modified"` // the file
	By         string            `json:"by"`
	OnBehalfOf string            `json:"on_behalf_of,omitempty"`
	At         time.Time         `json:"at"`
	Reason     string            `json:"reason,omitempty"`
	From       int64             `json:"from,omitempty"` // the version whose text this is, after a roll back
	Source     string            `json:"source"`
	Files      map[string][]byte `json:"files,omitempty"` // that the source names
}

// Listed is a Version in the answer to GET /v1/rules/versions: without its text.
type Listed struct {
	Version    int64     `json:"version"`
	Hash       string    `json:"hash"`
	Name       string    `json:"name"`
	File       string    `json:"file"`
	Modified   time.Time `json:"modified"`
	By         string    `json:"by"`
	OnBehalfOf string    `json:"on_behalf_of,omitempty"`
	At         time.Time `json:"at"`
	Bytes      int       `json:"bytes"`
	Reason     string    `json:"reason,omitempty"`
	From       int64     `json:"from,omitempty"`
}

// List is the answer to GET /v1/rules/versions, the newest first.
type List struct {
	Versions []Listed `json:"versions"`
	More     bool     `json:"more"`
}

// Parse reads the answer to GET /v1/rules.
func Parse(body []byte) (*Version, error) {
	var v Version
	err := json.Unmarshal(body, &v)
	if err == nil && v.Source == "" {
		err = errors.New("there are none in it")
	}
	if err != nil {
		return nil, fmt.Errorf("load the group's rules: read the aggregator's response: %w", err)
	}
	return &v, nil
}

// Beside reads a file that the rules name: those that were published with them, and nothing else.
func (v *Version) Beside(name string) ([]byte, error) {
	if text, ok := v.Files[name]; ok {
		return text, nil
	}
	return nil, fs.ErrNotExist
}

// Compile compiles the version as the group runs it.
func (v *Version) Compile() (*rules.Set, error) {
	set, err := rules.CompilePublished("the group's rules", []byte(v.Source), v.Beside)
	if err != nil {
		return nil, fmt.Errorf("version %d of the group's rules does not compile here: %w", v.Version, err)
	}
	return set, nil
}
