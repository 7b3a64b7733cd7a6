package console

import (
	"slices"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/verdict"
)

// explained is the answer to GET /v1/explain, as pages show it.
type explained api.Explained

// explain asks where a key stands, and the keys that contain it.
func (r *request) explain(key []event.Dim) (*explained, error) {
	a, err := r.API.Explain(r.ctx(), api.KeyQuery(key))
	return (*explained)(a), err
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
		list = append(list, (*explained)(&a.Others[i]).inForce()...)
	}
	return list
}

// denials are the strict limits that grant no permit to the key now, or to one that contains it, a sentence each,
// and their rules. No verdict tells of them.
func (a *explained) denials() (lines, names []string) {
	for i := range a.Rules {
		if e := &a.Rules[i]; e.Denied() {
			lines, names = append(lines, words.Denial(e)), append(names, e.Rule)
		}
	}
	for i := range a.Others {
		l, n := (*explained)(&a.Others[i]).denials()
		lines, names = append(lines, l...), append(names, n...)
	}
	return lines, names
}

// doubt is why strict limits of the key, or of one that contains it, grant nobody a permit now; nil if they do.
func (a *explained) doubt() *api.StrictState {
	if s := a.Strict; s != nil && !s.Grants && s.Why != "" {
		return s
	}
	for i := range a.Others {
		if s := (*explained)(&a.Others[i]).doubt(); s != nil {
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
func (a *explained) exemptions() (list []api.Exemption) {
	for i := range a.Rules {
		for _, e := range a.Rules[i].ExemptBy {
			if !slices.ContainsFunc(list, func(other api.Exemption) bool {
				return other.From == e.From && other.In == e.In && other.Until == e.Until && slices.Equal(other.Rules, e.Rules) && other.Reason == e.Reason
			}) {
				list = append(list, e)
			}
		}
	}
	return list
}
