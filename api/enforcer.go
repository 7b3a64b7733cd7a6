package api

import (
	"encoding/json"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// Decision is the answer to POST /v1/check.
type Decision struct {
	Allowed bool   `json:"allowed"`
	Waited  int64  `json:"waited,omitempty"`                                            // how many milliseconds it waited
	Action  string `json:"action,omitempty" schema:"enum=block|challenge|throttle|log"` // of the verdict that decides
	// Of the verdict that decides; for your logs.
	Rule       string `json:"rule,omitempty"`
	Public     string `json:"public,omitempty"` // the rule's public name; for your callers
	Until      string `json:"until,omitempty" schema:"type $ref=verdict.schema.json#/$defs/time"`
	RetryAfter int64  `json:"retry_after,omitempty"` // whole seconds, rounded up
	// No verdict denies, but the blocklist is stale.
	InDoubt   bool               `json:"in_doubt,omitempty"`
	Verdicts  []*verdict.Verdict `json:"verdicts"`  // all in force that cover the API; the one that decides comes first
	Staleness string             `json:"staleness"` // how long ago the table was known to be complete, such as 849ms
}

// Decisions is the answer to POST /v1/check/batch.
type Decisions struct {
	Results []Decision `json:"results"` // in the order of the checks
}

// Quotas is the answer to GET /v1/quotas.
type Quotas struct {
	Quotas    []Quota `json:"quotas"`    // the least first
	Staleness string  `json:"staleness"` // how long ago the table was known to be complete, such as 849ms
}

// Quota is a caller's remainder under one limit.
type Quota struct {
	Rule   string        `json:"rule"` // the rule's public name
	Limit  event.Decimal `json:"limit"`
	Left   event.Decimal `json:"left" schema:"minimum=0"`
	Count  event.Decimal `json:"count"`
	Window float64       `json:"window,omitempty" schema:"minimum exclusiveMinimum=0"` // seconds; absent if not fixed
	// When the count was that.
	Counted event.Micros `json:"counted" schema:"$ref=verdict.schema.json#/$defs/time"`
	// When the window ends, or nothing of the count is left.
	Resets event.Micros `json:"resets" schema:"$ref=verdict.schema.json#/$defs/time"`
}

// Admission is the answer to POST /v1/admit.
type Admission struct {
	Admitted bool            `json:"admitted"`
	Permit   string          `json:"permit,omitempty"`    // put it into the action's event
	PermitAt json.RawMessage `json:"permit_at,omitempty"` // put it into the action's event, unchanged: a time, or times by key
	ID       string          `json:"id,omitempty"`        // ask again with it for the same permit
	Token    string          `json:"token,omitempty"`     // ends the permit

	Limited    bool           `json:"limited"`         // the opposite of Admitted
	Limit      *event.Decimal `json:"limit,omitempty"` // of the limit that decided
	Remaining  *event.Decimal `json:"remaining,omitempty" schema:"minimum=0"`
	RetryAfter int64          `json:"retry_after,omitempty"` // whole seconds, rounded up
	Reset      int64          `json:"reset,omitempty"`       // whole seconds, rounded up

	Action  string `json:"action,omitempty" schema:"enum=block|challenge|throttle|log"`
	Rule    string `json:"rule,omitempty"`   // for your logs
	Public  string `json:"public,omitempty"` // for your callers
	Until   string `json:"until,omitempty" schema:"type $ref=verdict.schema.json#/$defs/time"`
	InDoubt bool   `json:"in_doubt,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Waited  int64  `json:"waited,omitempty"` // milliseconds
}

// Ended is the answer to POST /v1/cancel, and to POST /v1/done.
type Ended struct {
	Ended     bool `json:"ended" schema:"const=true"`
	Emitted   bool `json:"emitted,omitempty"`   // this server emits the event
	Elsewhere bool `json:"elsewhere,omitempty"` // a share of another process' limits is given back by that one, later
}

// VerdictPage is the answer to GET /v1/blocklist: a page of the verdicts in the server's memory.
type VerdictPage struct {
	Verdicts []*verdict.Verdict `json:"verdicts"`
	Cursor   string             `json:"cursor,omitempty"` // of the next page
}
