package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// presenceCommands are those by which enforcers announce themselves, beside those of feedCommands: on the
// key of all enforcers.
var presenceCommands = [][]any{{"hset", "key", "f", "1"}, {"hdel", "key", "f"}, {"hgetall", "key"}, {"time"}}

// checkEnforcers looks at what enforcers say about themselves.
func (e *examination) checkEnforcers(ctx context.Context) outcome {
	results := e.presenceRights(ctx)
	all, err := presence.List(ctx, e.cfg.Redis, e.cfg.Prefix)
	switch {
	case err != nil && hidden(err) && len(results) > 0:
		return found(results...)
	case err != nil && hidden(err):
		return found(skip("enforcers", "no right to list them (HGETALL and TIME, on %s)", presence.Key(e.cfg.Prefix)))
	case err != nil:
		return found(fail("enforcers", "", "%v", err))
	case len(all) == 0:
		return found(append(results, skip("enforcers", "none has announced itself: either none runs, or they are older, without the rights to %s, or told not to", presence.Key(e.cfg.Prefix)))...)
	}
	o := e.cfg.look()
	o.Enforcers.Took(all, nil, o.Now)
	if wrong := judged("enforcers", o); len(wrong) > 0 {
		return found(worst(append(wrong, results...))...)
	}
	entries := make([]string, len(all))
	for i, b := range all {
		entries[i] = fmt.Sprintf("%s (%s)", b.Name, words.Plural(b.Entries, "verdict"))
	}
	return found(append(results, ok("enforcers", "%s in step, all of version %s: %s", words.Plural(len(all), "enforcer"), all[0].Version, health.Some(entries)))...)
}

// presenceRights asks whether this user may do what enforcers do to announce themselves. Nothing is tried:
// the key is in use. What cannot be queried has no result.
func (e *examination) presenceRights(ctx context.Context) []Result {
	user, err := e.cfg.Redis.Do(ctx, "acl", "whoami").Text()
	if err != nil {
		return nil
	}
	key := presence.Key(e.cfg.Prefix)
	var denied []string
	for _, template := range presenceCommands {
		args := slices.Clone(template)
		if len(args) > 1 {
			args[1] = key
		}
		answer, err := e.cfg.Redis.ACLDryRun(ctx, user, args...).Result()
		if err == nil && answer != "OK" {
			err = errors.New(answer)
		}
		switch {
		case err == nil:
		case strings.Contains(strings.ToLower(err.Error()), "no permissions") && !strings.Contains(err.Error(), "'acl"):
			denied = append(denied, nameOf(args))
		default:
			return nil
		}
	}
	if len(denied) == 0 {
		return nil
	}
	return []Result{warn("enforcers", fmt.Sprintf("ACL SETUSER %s ~%s +%s", user, key, strings.Join(rightsOf(presenceCommands), " +")),
		"user %q may not use %s on %s: enforcers with these rights work, and operators do not see them", user, strings.Join(denied, ", "), key)}
}
