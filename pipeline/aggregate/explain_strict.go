package aggregate

import (
	"context"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/internal/words"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

// StrictExplainer says where a key of an owned partition stands under strict limits: one standing for
// each limit, in their order, or none when Redis does not answer.
type StrictExplainer func(ctx context.Context, partition int32, key string, limits []*rules.Limit) ([]StrictStanding, StrictState)

// StrictState says whether permits are granted for a key's partition.
type StrictState struct {
	Grants     bool         `json:"grants"`
	DoubtSince event.Micros `json:"doubt_since"`     // NoTime when they are, or when nobody knows
	Why        string       `json:"why,omitempty"`   // they are not
	Error      string       `json:"error,omitempty"` // why no standings are known
}

// StrictStanding is where a key stands under one strict limit, by what Redis keeps.
type StrictStanding struct {
	Level     event.Decimal `json:"level"`     // what is counted
	Held      event.Decimal `json:"held"`      // what is under way
	Used      event.Decimal `json:"used"`      // both: of a bucket it may be less than their sum
	Limit     event.Decimal `json:"limit"`     // 0: unlimited
	Remaining event.Decimal `json:"remaining"` // 0 when unlimited
	Permits   int           `json:"permits"`   // that are under way
	Oldest    event.Micros  `json:"oldest"`    // when the first of them was granted; NoTime without any
	LostAt    event.Micros  `json:"lost_at"`   // when the first of them is lost; NoTime without any
	Lost      string        `json:"lost"`      // what becomes of it then: count or return
	ResetsAt  event.Micros  `json:"resets_at"` // when nothing counts any more; NoTime when nobody knows, or nothing does
}

// explained is an explanation of a rule, where the key stands in Redis if the rule is strict, and why it is
// exempt.
type explained struct {
	rules.Explanation
	Strict   *StrictStanding `json:"strict,omitempty"`
	ExemptBy []Exemption     `json:"exempt_by,omitempty"` // why it is exempt
}

// Denies reports whether no permit for an action of 1 is granted now, by where the key stands: e explains
// the same limit. No verdict says so, and the end of one changes nothing about it.
func (s *StrictStanding) Denies(e *rules.Explanation) bool {
	return s != nil && !e.Exempt && e.Mode != verdict.Shadow && s.Limit > 0 && s.Remaining < event.One
}

// Denial says in words why no permit is granted, and what helps. It is for a standing that Denies.
func (s *StrictStanding) Denial(e *rules.Explanation) string {
	text := fmt.Sprintf("The strict limit %s grants no permit: %s counted and %s under way of %s", e.Rule, s.Level, s.Held, s.Limit)
	if s.ResetsAt != event.NoTime {
		text += ", until " + words.Clock(s.ResetsAt) + " at the latest"
	}
	if s.Held+event.One > s.Limit {
		return text + ". Nothing helps but that what is under way ends."
	}
	return text + ". The end of a verdict does not change that: a reset does."
}

// inFlightWindow is what explanations call the window of what is under way.
const inFlightWindow = "in-flight"

// strictWithin bounds the question to Redis: the rest of the answer does not need it.
const strictWithin = time.Second

// ExplainStrict has explanations of keys tell what the function says. Call it before Run.
func (a *api) ExplainStrict(ask StrictExplainer) { a.strictly = ask }

// explainStrict adds to explanations where the key stands under strict limits, and the limits that count
// what is under way: they have no counters.
func (a *api) explainStrict(ctx context.Context, key []event.Dim, list []rules.Explanation, limits []*rules.Limit) ([]explained, *StrictState) {
	out := make([]explained, len(list))
	place := map[string]int{}
	for i := range list {
		out[i].Explanation = list[i]
		place[list[i].Rule] = i
	}
	if len(limits) == 0 {
		return out, nil
	}
	standings, state := a.standings(ctx, key, limits)
	for i, l := range limits {
		at, there := place[l.Name]
		if !there {
			at = len(out)
			out = append(out, explained{Explanation: underWay(l)})
		}
		if i < len(standings) {
			out[at].Strict = &standings[i]
			if !there {
				out[at].Count, out[at].Explanation.Limit = standings[i].Held, standings[i].Limit
				out[at].Left = max(standings[i].Limit-standings[i].Held, 0)
			}
		}
	}
	return out, &state
}

func (a *api) standings(ctx context.Context, key []event.Dim, limits []*rules.Limit) ([]StrictStanding, StrictState) {
	if a.strictly == nil {
		return nil, StrictState{DoubtSince: event.NoTime, Why: "the aggregator runs without Redis, where permits are granted"}
	}
	ctx, cancel := context.WithTimeout(ctx, strictWithin)
	defer cancel()
	return a.strictly(ctx, a.Partition(key), string(event.AppendKey(nil, key)), limits)
}

// underWay explains a limit that nothing but permits counts under.
func underWay(l *rules.Limit) rules.Explanation {
	return rules.Explanation{
		Rule: l.Name, Public: l.Rule.Public, Window: inFlightWindow, Limit: l.Limit, From: event.NoTime, Until: event.NoTime,
		FreesAt: event.NoTime, Latest: event.NoTime, Counted: event.NoTime, Mode: l.Rule.Mode,
	}
}
