package api

import (
	"context"
	"net/url"

	"github.com/tallygate/tallygate/event"
)

// Distribution is the answer to GET /v1/rules/distribution: how many keys have counted how much under a rule, now.
type Distribution struct {
	Rule       string             `json:"rule"`
	Limits     []LimitCounts      `json:"limits"`
	Sampled    bool               `json:"sampled"`           // the numbers are estimates from a part of the keys
	Partitions []int32            `json:"partitions"`        // whose keys were looked at, in order
	Missing    []MissingPartition `json:"missing,omitempty"` // partitions without an answer
}

// LimitCounts are the keys under one limit.
type LimitCounts struct {
	Limit   string        `json:"limit"`                        // its name within the rule; empty if the rule has one limit
	Number  *DecimalText  `json:"number"`                       // nil: unlimited, or not the same for all keys
	Keys    int           `json:"keys"`                         // how many have counted something
	Over    int           `json:"over"`                         // how many are above their limit
	Near    int           `json:"near"`                         // how many have 80% of it or more, and are not above it
	Buckets []CountBucket `json:"buckets" schema:"maxItems=40"` // in order
}

// CountBucket counts keys that have counted more than From, and at most To; in the last bucket it may be more.
type CountBucket struct {
	From DecimalText `json:"from"` // a count is above it
	To   DecimalText `json:"to"`   // and at most this; in the last bucket it may be more
	Keys int         `json:"keys"`
}

// DecimalText is a Decimal as text: numbers of JSON lose digits in some languages.
type DecimalText event.Decimal

// MarshalText writes it.
func (d DecimalText) MarshalText() ([]byte, error) { return event.Decimal(d).AppendTo(nil), nil }

// UnmarshalText reads it.
func (d *DecimalText) UnmarshalText(text []byte) error {
	n, err := event.ParseDecimal(string(text))
	*d = DecimalText(n)
	return err
}

func (d DecimalText) String() string { return event.Decimal(d).String() }

// Distribution asks for the counts under a rule, or under one limit as rule/limit.
func (a *Client) Distribution(ctx context.Context, rule string) (*Distribution, error) {
	return Decode[Distribution](a.Get(ctx, "/v1/rules/distribution?rule="+url.QueryEscape(rule)))
}
