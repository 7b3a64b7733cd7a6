package api

import (
	"context"
	"net/url"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// Explained is the answer to GET /v1/explain: where a key stands under every rule that counts by its dimensions.
type Explained struct {
	Key       map[string]string `json:"key"`
	Partition int32             `json:"partition"`
	Hot       *Heat             `json:"hot,omitempty"`    // if it takes much of its partition
	Strict    *StrictState      `json:"strict,omitempty"` // if a rule is strict
	Rules     []ExplainedRule   `json:"rules"`

	// Keys that contain this one, those that are blocked first.
	Others  []Explained        `json:"others,omitempty"`
	More    int                `json:"more,omitempty"`    // how many of them are left out
	Missing []MissingPartition `json:"missing,omitempty"` // where nobody could be asked for them
}

// ExplainedRule explains a key under one limit: where it stands in Redis if the rule is strict, and why it is exempt.
type ExplainedRule struct {
	Explanation
	Strict   *StrictStanding `json:"strict,omitempty"`
	ExemptBy []Exemption     `json:"exempt_by,omitempty"` // why it is exempt
	Grants   []Allowance     `json:"grants,omitempty"`    // the key's limit and grants by commands that hold
}

// Explanation is a key's position under one limit.
type Explanation struct {
	Rule      string           `json:"rule"`             // the limit's name: rule, or rule/limit
	Public    string           `json:"public,omitempty"` // the rule's public name
	Window    string           `json:"window"`
	Count     event.Decimal    `json:"count"`
	Limit     event.Decimal    `json:"limit"`                   // of the key's tier; a bucket's burst; 0: unlimited, or closed
	Closed    bool             `json:"closed,omitempty"`        // the limit is 0: it allows nothing
	Left      event.Decimal    `json:"left" schema:"minimum=0"` // limit - count, 0 above the limit, and when it is unlimited
	Granted   event.Decimal    `json:"granted,omitempty"`       // how much of the limit commands have granted on top
	Tier      int              `json:"tier,omitempty"`          // the number of the tier, from 1; 0: none
	LimitFrom string           `json:"limit_from,omitempty"`    // what tells the limit besides the rule: an attribute, overrides, or a command
	Estimated bool             `json:"estimated,omitempty"`     // the count is an estimate
	From      event.Micros     `json:"from"`                    // the start of what the window covers
	Until     event.Micros     `json:"until"`                   // its end, which is not part of it
	FreesAt   event.Micros     `json:"frees_at"`                // when the count falls below the limit; NoTime when it is below
	Frees     string           `json:"frees,omitempty"`         // what ends what is in force, or what lowers the count
	Exempt    bool             `json:"exempt,omitempty"`        // counted, not judged
	Mode      verdict.Mode     `json:"mode"`
	Latest    event.Micros     `json:"latest"`              // the key's latest event, of whatever rule; NoTime when it had none
	Counted   event.Micros     `json:"counted"`             // the latest event that this limit counted
	Reset     event.Micros     `json:"reset,omitempty"`     // up to when nothing counts any more, by `reset_on`; absent: no event did that
	Events    []string         `json:"events,omitempty"`    // ids of the events that triggered its verdicts
	Verdict   *verdict.Verdict `json:"verdict"`             // what is in force, without its seq; nil when nothing is
	Candidate *verdict.Verdict `json:"candidate,omitempty"` // the same of its candidate
}

// StrictState is the state of permits for keys of one partition: they are granted, or not.
type StrictState struct {
	Grants     bool         `json:"grants"`
	DoubtSince event.Micros `json:"doubt_since"`     // NoTime when they are, or when nobody knows
	Why        string       `json:"why,omitempty"`   // why they are not
	Error      string       `json:"error,omitempty"` // why no standings are known
}

// StrictStanding is a key's position under one strict limit, by what Redis keeps.
type StrictStanding struct {
	Level     event.Decimal `json:"level"`                           // what is counted
	Held      event.Decimal `json:"held"`                            // what is under way
	Used      event.Decimal `json:"used"`                            // level and held together; of a bucket it may be less than their sum
	Limit     event.Decimal `json:"limit"`                           // 0: unlimited, or closed
	Closed    bool          `json:"closed,omitempty"`                // the limit is 0: it allows nothing
	Remaining event.Decimal `json:"remaining" schema:"minimum=0"`    // 0 when unlimited
	Sum       bool          `json:"sum,omitempty"`                   // it counts amounts, of which a fraction may still fit
	Permits   int           `json:"permits"`                         // that are under way
	Oldest    event.Micros  `json:"oldest"`                          // when the first of them was granted; NoTime without any
	LostAt    event.Micros  `json:"lost_at"`                         // when the first of them is lost; NoTime without any
	Lost      string        `json:"lost" schema:"enum=count|return"` // what becomes of it then
	ResetsAt  event.Micros  `json:"resets_at"`                       // when nothing counts any more; NoTime when nobody knows, or nothing does
}

// Denied reports whether not even the smallest action is granted a permit now, by where the key stands in Redis. No
// verdict says so, and the end of one changes nothing about it.
func (e *ExplainedRule) Denied() bool {
	s := e.Strict
	return s != nil && !e.Exempt && e.Mode != verdict.Shadow && (s.Limit > 0 || s.Closed) && s.Remaining < s.least()
}

// Waits reports whether what is under way alone leaves no room for the smallest action: a reset changes nothing then.
func (s *StrictStanding) Waits() bool { return s.Held+s.least() > s.Limit }

// least is the smallest action: of a sum a millionth, which is as exact as sums are.
func (s *StrictStanding) least() event.Decimal {
	if s.Sum {
		return 1
	}
	return event.One
}

// Unlimited reports whether the key has no limit.
func (e *Explanation) Unlimited() bool { return e.Limit == 0 && !e.Closed }

// Unlimited reports whether the key has no limit.
func (s *StrictStanding) Unlimited() bool { return s.Limit == 0 && !s.Closed }

// KeyQuery names a key in a question.
func KeyQuery(key []event.Dim) url.Values {
	q := url.Values{}
	for _, d := range key {
		name := d.Name
		if name == "api" { // api alone leaves only an API's rules
			name = "key.api"
		}
		q.Set(name, d.Value)
	}
	return q
}

// Explain asks where a key stands: q is a KeyQuery, and may have api, exact and limit.
func (a *Client) Explain(ctx context.Context, q url.Values) (*Explained, error) {
	return Decode[Explained](a.Get(ctx, "/v1/explain?"+q.Encode()))
}
