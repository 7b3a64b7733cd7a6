package doctor

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/internal/tools/input"
	"github.com/tallygate/tallygate/rules"
)

// checkRules compiles the rule file, and checks the largest state of a key.
func (e *examination) checkRules(context.Context) outcome {
	if e.cfg.Rules == "" {
		return found(skip("rules", "no --rules was given"))
	}
	src, err := os.ReadFile(e.cfg.Rules)
	if err != nil {
		return found(fail("rules", "", "%v", err))
	}
	set, err := rules.CompileWith(e.cfg.Rules, src, input.Beside(e.cfg.Rules))
	if err != nil {
		return found(fail("rules", "tallygate check "+e.cfg.Rules, "%v", err))
	}
	keep := func() { e.set = set }
	size, dims := set.LargestState()
	if size > rules.MaxStateBytes {
		return outcome{keep: keep, results: []Result{fail("rules", "use fewer limits per key, or longer panes (resolution)",
			"%s: a key of %s may need %d bytes of state, at most %d are allowed", e.cfg.Rules, health.Some(dims), size, rules.MaxStateBytes)}}
	}
	results := []Result{ok("rules", "%s: %s, at most %d bytes of state per key", e.cfg.Rules, words.Plural(len(set.All()), "rule"), size)}
	if n := len(set.WarningsAt(event.FromTime(time.Now()))); n > 0 {
		results = []Result{warn("rules", "tallygate check "+e.cfg.Rules, "%s: valid, with %s", e.cfg.Rules, fmt.Sprint(words.Plural(n, "warning")))}
	}
	return outcome{results: results, keep: keep}
}
