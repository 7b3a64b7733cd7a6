package aggregate

import (
	"context"
	"errors"

	"github.com/tallygate/tallygate/api"
)

// Reload makes a changed rule file the next version of the group's rules. A file with mistakes
// changes nothing: the error wraps ErrRules and rules.Errors. A file older than the group's rules
// changes nothing either (ErrOlderRules).
func (a *Aggregator) Reload(ctx context.Context, file RuleFile) (api.Reloaded, error) {
	if !a.book.Shared() {
		return api.Reloaded{}, ErrRulesFixed
	}
	if !a.online.Load() {
		return api.Reloaded{}, ErrNotConnected
	}
	done, err := a.book.reload(ctx, file)
	if errors.Is(err, ErrRules) || errors.Is(err, ErrRulesTooLarge) {
		a.RuleFileRefused()
	}
	return done, err
}

// RuleFileRefused counts an attempt to use a rule file that failed because of the file, before Reload
// could be asked.
func (a *Aggregator) RuleFileRefused() { a.metrics.rulesFailed.Inc() }
