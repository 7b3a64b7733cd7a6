package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
	if wrong := judgeEnforcers(all); len(wrong) > 0 {
		return found(worst(append(wrong, results...))...)
	}
	entries := make([]string, len(all))
	for i, b := range all {
		entries[i] = fmt.Sprintf("%s (%s)", b.Name, plural(b.Entries, "verdict"))
	}
	return found(append(results, ok("enforcers", "%s in step, all of version %s: %s", plural(len(all), "enforcer"), all[0].Version, some(entries)))...)
}

// judgeEnforcers returns a result for each thing that is wrong with some of them.
func judgeEnforcers(all []presence.Beat) (results []Result) {
	var gone, stale, off, skewed, failing []string
	versions := map[string][]string{}
	for i := range all {
		b := &all[i]
		if b.Gone() {
			gone = append(gone, fmt.Sprintf("%s (heard of %v ago)", b.Name, b.Age.Round(time.Second)))
			continue
		}
		versions[b.Version] = append(versions[b.Version], b.Name)
		switch {
		case b.Stale && b.Staleness < 0:
			stale = append(stale, b.Name+" (has never read the blocklist)")
		case b.Stale:
			stale = append(stale, fmt.Sprintf("%s (%v behind)", b.Name, seconds(b.Staleness)))
		}
		if !b.Enabled {
			off = append(off, fmt.Sprintf("%s (by %s, since %s)", b.Name, b.OffCause, b.OffSince.UTC().Format(time.RFC3339)))
		}
		if skew := b.Skew(); skew.Abs() > clockWarn {
			skewed = append(skewed, fmt.Sprintf("%s (%+.1f s)", b.Name, skew.Seconds()))
		}
		if b.Error != "" {
			failing = append(failing, fmt.Sprintf("%s (%s)", b.Name, b.Error))
		}
	}
	add := func(names []string, make func(name, fix, format string, args ...any) Result, fix, what string) {
		if len(names) > 0 {
			results = append(results, make("enforcers", fix, "%s %s: %s", plural(len(names), "enforcer"), what, some(names)))
		}
	}
	add(stale, fail, "see blocklist: is it written? And the enforcer's log: does it reach Redis?", "stale")
	add(failing, fail, "see the enforcer's log; `tallygate doctor --acls` prints the rights that its user in Redis needs", "unable to follow the blocklist")
	add(off, warn, "turn it on again: remove the file of --off-file, restart without TALLYGATE_ENFORCE=off, or have the service call SetEnabled(true)", "switched off, which allows everything")
	add(skewed, warn, "synchronize all machines by NTP (chrony, systemd-timesyncd): a clock that is ahead ends blocks early", "with a clock that is not Redis'")
	add(gone, warn, "start it again, or look whether it reaches Redis; one that was killed on purpose is forgotten after an hour", "gone without a word")
	if len(versions) > 1 {
		results = append(results, warn("enforcers", "finish the upgrade", "they have %d versions: %s", len(versions), byVersion(versions)))
	}
	return results
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond)
}

func byVersion(versions map[string][]string) string {
	var parts []string
	for version, names := range versions {
		parts = append(parts, fmt.Sprintf("%s (%s)", version, some(names)))
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
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
