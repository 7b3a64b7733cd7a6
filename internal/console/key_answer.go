package console

import (
	"slices"

	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

// explained is the answer to GET /v1/explain.
type explained struct {
	Key       map[string]string      `json:"key"`
	Partition int32                  `json:"partition"`
	Hot       *keyHeat               `json:"hot"`
	Rules     []explainedRule        `json:"rules"`
	Strict    *aggregate.StrictState `json:"strict"`

	Others  []explained    `json:"others"` // keys that contain this one
	More    int            `json:"more"`
	Missing []missingShare `json:"missing"`
}

type keyHeat struct {
	Share           float64 `json:"share"`
	EventsPerSecond float64 `json:"events_per_second"`
}

// missingShare is a partition that did not answer.
type missingShare struct {
	Partition int32  `json:"partition"`
	Reason    string `json:"reason"`
}

type explainedRule struct {
	rules.Explanation
	Strict   *aggregate.StrictStanding `json:"strict"`
	ExemptBy []aggregate.Exemption     `json:"exempt_by"`
}

// commandBody is the body of POST /v1/commands. Nobody's name is in it: the aggregator knows whose credential it is.
type commandBody struct {
	Command string            `json:"command"`
	Key     map[string]string `json:"key"`
	Exact   bool              `json:"exact,omitempty"`
	Rule    string            `json:"rule,omitempty"`
	For     string            `json:"for,omitempty"`
	Reason  string            `json:"reason"`
}

// commandResult is its answer.
type commandResult struct {
	ID         string                `json:"id"`
	Keys       int                   `json:"keys"`
	Verdicts   []verdict.Verdict     `json:"verdicts"`
	Exemptions []aggregate.Exemption `json:"exemptions"`
	Ended      int                   `json:"ended"`
}

// explain asks where a key stands, and the keys that contain it.
func (r *request) explain(key []event.Dim) (*explained, error) {
	a, err := ask[explained](r, "/v1/explain", keyQuery(key))
	if err != nil {
		return nil, err
	}
	return &a, nil
}

// known reports whether a rule counts the key, or one that contains it.
func (a *explained) known() bool { return len(a.Rules)+len(a.Others)+a.More+len(a.Missing) > 0 }

// never reports whether no rule has counted an event of the key, or of one that contains it.
func (a *explained) never() bool {
	for i := range a.Rules {
		if a.Rules[i].Latest != event.NoTime || a.Rules[i].Verdict != nil {
			return false
		}
	}
	return len(a.Rules) > 0 && len(a.Others) == 0 && a.More == 0
}

// inForce are the verdicts in force of the key, and of those of the keys that contain it that were explained.
func (a *explained) inForce() (list []verdict.Verdict) {
	for i := range a.Rules {
		if v := a.Rules[i].Verdict; v != nil {
			list = append(list, *v)
		}
	}
	for i := range a.Others {
		list = append(list, a.Others[i].inForce()...)
	}
	return list
}

// denials are the strict limits that grant no permit to the key now, or to one that contains it, a sentence each,
// and their rules. No verdict tells of them.
func (a *explained) denials() (lines, names []string) {
	for i := range a.Rules {
		if e := &a.Rules[i]; e.Strict.Denies(&e.Explanation) {
			lines, names = append(lines, e.Strict.Denial(&e.Explanation)), append(names, e.Rule)
		}
	}
	for i := range a.Others {
		l, n := a.Others[i].denials()
		lines, names = append(lines, l...), append(names, n...)
	}
	return lines, names
}

// doubt is why strict limits of the key, or of one that contains it, grant nobody a permit now; nil if they do.
func (a *explained) doubt() *aggregate.StrictState {
	if s := a.Strict; s != nil && !s.Grants && s.Why != "" {
		return s
	}
	for i := range a.Others {
		if s := a.Others[i].doubt(); s != nil {
			return s
		}
	}
	return nil
}

// without says why the key gets no permits, or one that contains it: a sentence each.
func (a *explained) without() []string {
	lines, _ := a.denials()
	if s := a.doubt(); s != nil {
		lines = append(lines, strictState(s)+".")
	}
	return lines
}

// exemptions are those of the key, each once.
func (a *explained) exemptions() (list []aggregate.Exemption) {
	for i := range a.Rules {
		for _, e := range a.Rules[i].ExemptBy {
			if !slices.ContainsFunc(list, func(other aggregate.Exemption) bool {
				return other.From == e.From && other.In == e.In && other.Until == e.Until && slices.Equal(other.Rules, e.Rules) && other.Reason == e.Reason
			}) {
				list = append(list, e)
			}
		}
	}
	return list
}
