package enforcer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

// OnStale configures what the program answers before the first snapshot, and while the blocklist is further
// behind than Config.MaxStaleness. The zero value enforces what was known last.
type OnStale struct {
	Do        enforce.OnStale
	Rules     map[string]enforce.RuleOnStale // what holds for single rules instead
	Instances int                            // how many decision servers share the load, and so a local limit; 0 is 1
}

// onStaleOptions are the options that OnStale is made of.
type onStaleOptions struct {
	into  *OnStale
	rules ops.Table
}

func addOnStale(o *ops.Options, into *OnStale) *onStaleOptions {
	o.TextVar(&into.Do, "in-doubt", enforce.LastKnown, "`answer` while the blocklist is stale (before the first snapshot, or further behind than --max-staleness): last-known, open, closed or local")
	o.IntVar(&into.Instances, "instances", 1, "`number` of enforcers that share the load, for local limits while the blocklist is stale")
	return &onStaleOptions{into, o.Table("in-doubt-rules", "`RULE=ANSWER,…`: answers for single rules while the blocklist is stale: open, last-known, 'closed API …' or 'local LIMIT/TIME API … by DIMENSION …'")}
}

func (o *onStaleOptions) build() error {
	if o.into.Instances < 1 {
		return &ops.UsageError{Err: fmt.Errorf("--instances %d: want at least 1", o.into.Instances)}
	}
	var errs []error
	o.into.Rules = map[string]enforce.RuleOnStale{}
	for _, name := range slices.Sorted(maps.Keys(o.rules)) {
		r, err := parseRuleOnStale(o.rules[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("--in-doubt-rules: %s=%s: %w", name, o.rules[name], err))
		}
		o.into.Rules[name] = r
	}
	if err := errors.Join(errs...); err != nil {
		return &ops.UsageError{Err: err}
	}
	return nil
}

// parseRuleOnStale parses words: the answer; LIMIT/TIME if it is local; APIs; and, after "by",
// dimensions.
func parseRuleOnStale(text string) (r enforce.RuleOnStale, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return r, errors.New("want open, last-known, closed or local")
	}
	if err := r.Do.UnmarshalText([]byte(words[0])); err != nil {
		return r, err
	}
	words = words[1:]
	if r.Do == enforce.Local {
		if len(words) == 0 {
			return r, errors.New("want the limit after local, as in 100/1m")
		}
		limit, per, _ := strings.Cut(words[0], "/")
		r.Limit, err = strconv.Atoi(limit)
		if err == nil {
			r.Per, err = time.ParseDuration(per)
		}
		if err != nil || r.Limit < 1 || r.Per <= 0 {
			return r, fmt.Errorf("the limit %q is not LIMIT/TIME, as in 100/1m", words[0])
		}
		words = words[1:]
	}
	if by := slices.Index(words, "by"); by >= 0 {
		if r.Do != enforce.Local || by == len(words)-1 {
			return r, errors.New("by and dimensions are for local limits")
		}
		words, r.Key = words[:by], words[by+1:]
	}
	r.APIs = words
	return r, nil
}
