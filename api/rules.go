package api

import (
	"context"
	"net/url"
	"time"
)

// Rules is the answer to GET /v1/rules: a version of the group's rules, as it was published.
type Rules struct {
	Version int64 `json:"version" schema:"minimum=1"`
	RuleRecord
}

// RuleRecord is a record of the rules topic.
type RuleRecord struct {
	Format   int       `json:"format" schema:"const=1"`
	Hash     string    `json:"hash"` // two sets with the same hash are the same
	Name     string    `json:"name"` // the set's
	File     string    `json:"file"`
	Modified time.Time `json:"modified"` // when the file was
	By       string    `json:"by"`       // the instance that published it, or the credential that asked for it
	At       time.Time `json:"at"`
	Source   string    `json:"source"` // the YAML

	Files      map[string][]byte `json:"files,omitempty"`        // that the source names, by name; in base64
	From       int64             `json:"from,omitempty"`         // of a roll back: the version whose text this is
	Reason     string            `json:"reason,omitempty"`       // of a roll back
	OnBehalfOf string            `json:"on_behalf_of,omitempty"` // of a roll back
	Withdrawn  []string          `json:"withdrawn,omitempty"`    // of a roll back: hashes of the texts of the versions that it replaces
}

// RuleVersions is the answer to GET /v1/rules/versions.
type RuleVersions struct {
	Versions []RuleVersion `json:"versions"` // the newest first
	More     bool          `json:"more"`     // there are older ones
}

// RuleVersion is a version of the group's rules, without its text.
type RuleVersion struct {
	Version    int64     `json:"version" schema:"minimum=1"`
	Hash       string    `json:"hash"`
	Name       string    `json:"name"`
	File       string    `json:"file"`
	Modified   time.Time `json:"modified"` // when the file was
	By         string    `json:"by"`
	OnBehalfOf string    `json:"on_behalf_of,omitempty"`
	At         time.Time `json:"at"`
	Bytes      int       `json:"bytes"`          // of the source, and the files that it names
	From       int64     `json:"from,omitempty"` // of a roll back: the version whose text this is
	Reason     string    `json:"reason,omitempty"`
}

// Rollback is the body of POST /v1/rules/rollback.
type Rollback struct {
	Version    int64  `json:"version" schema:"minimum=1"`  // whose text becomes the newest version
	Reason     string `json:"reason" schema:"minLength=1"` // why, for the audit; up to 4096 bytes
	By         string `json:"by,omitempty"`                // as the caller states; up to 256 bytes
	OnBehalfOf string `json:"on_behalf_of,omitempty"`      // the same
}

// Reloaded is the answer to POST /-/reload, and to POST /v1/rules/rollback.
type Reloaded struct {
	Version int64 `json:"version"` // the version that this instance runs now
	Changed bool  `json:"changed"` // it was published as this version
}

// RuleVersions asks for the versions of the rules: q may have limit and before.
func (a *Client) RuleVersions(ctx context.Context, q url.Values) (*RuleVersions, error) {
	return Decode[RuleVersions](a.Get(ctx, "/v1/rules/versions?"+q.Encode()))
}

// Rollback runs an older version again.
func (a *Client) Rollback(ctx context.Context, to Rollback) (*Reloaded, error) {
	return Decode[Reloaded](a.Post(ctx, "/v1/rules/rollback", to))
}
