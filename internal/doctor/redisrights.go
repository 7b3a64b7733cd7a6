package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// scriptCommands are what publishers use, nearly all of it inside their script, which runs with its caller's
// rights. In this order they find what they ask for.
var scriptCommands = [][]any{
	{"time"},
	{"hset", hashKey, "f", "1"}, {"hget", hashKey, "f"}, {"hmget", hashKey, "f"},
	{"zadd", setKey, "1", "m"}, {"zscore", setKey, "m"}, {"zrangebyscore", setKey, "-inf", "1", "limit", "0", "1"},
	{"xadd", streamKey, "maxlen", "~", "10", "1-1", "f", "1"}, {"xrevrange", streamKey, "+", "-", "count", "1"},
	{"eval", "return 1", "1", hashKey},
	{"evalsha", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "1", hashKey}, // of "return 1"
	{"hdel", hashKey, "f"}, {"zrem", setKey, "m"}, {"del", streamKey},
}

// feedCommands are what enforcers and services use that follow the blocklist: they only read.
var feedCommands = [][]any{
	{"hmget", hashKey, "f"}, {"hscan", hashKey, "0"}, {"xread", "count", "1", "streams", streamKey, "0-0"},
}

// doctorCommands are what this command asks beside these, by the names that rights have.
var doctorCommands = []string{"ping", "hlen", "info", "config|get", "acl|whoami", "acl|dryrun"}

// clusterCommands are what any client of a Cluster asks.
var clusterCommands = []string{"command", "cluster|slots", "cluster|shards"}

// rightsOf names the commands, each once.
func rightsOf(lists ...[][]any) (names []string) {
	for _, c := range slices.Concat(lists...) {
		if name := fmt.Sprint(c[0]); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// redisUser is the line that makes a user of Redis with these rights and no others; keys is "~" for those who write, and "%R~",
// which Redis has since 7.0, for those who only read.
func redisUser(user, prefix, keys string, names []string) string {
	return fmt.Sprintf("ACL SETUSER %s reset on >PASSWORD %s{%s:* +%s", user, keys, prefix, strings.Join(names, " +"))
}

type keyName string

const (
	hashKey   keyName = "verdicts"
	setKey    keyName = "expiry"
	streamKey keyName = "changes"
)

// checkRights asks with ACL DRYRUN, or tries the commands where that is not to be had.
func (e *examination) checkRights(ctx context.Context) outcome {
	tag := fmt.Sprintf("{%s:0}:", e.cfg.Prefix)
	user, err := e.cfg.Redis.Do(ctx, "acl", "whoami").Text()
	how := "asked by ACL DRYRUN"
	var denied []string
	if err == nil {
		denied, err = e.tryCommands(ctx, tag, func(ctx context.Context, args []any) error {
			answer, err := e.cfg.Redis.ACLDryRun(ctx, user, args...).Result()
			if err == nil && answer != "OK" {
				return errors.New(answer)
			}
			return err
		})
	}
	if err != nil && (hidden(err) || isAnswer(err)) {
		if e.cfg.NoWrite {
			return found(skip("redis-rights", "ACL DRYRUN may not be used, and --no-write forbids to try"))
		}
		how = "tried on scratch keys"
		tag += "doctor-" + e.random + ":"
		denied, err = e.tryCommands(ctx, tag, func(ctx context.Context, args []any) error { return e.cfg.Redis.Do(ctx, args...).Err() })
		e.cfg.Redis.Del(context.WithoutCancel(ctx), tag+string(hashKey), tag+string(setKey), tag+string(streamKey)) // mostly gone already
	}
	if err != nil {
		return found(fail("redis-rights", "", "%v", err))
	}
	if len(denied) > 0 {
		return found(fail("redis-rights", e.aclSetUser(user), "user %q may not use %s on %s*", user, strings.Join(denied, ", "), tag))
	}
	return found(ok("redis-rights", "all commands of publisher and feed are allowed (%s)", how))
}

// tryCommands returns the names of those that are denied. The error is of a first command that says nothing about rights.
func (e *examination) tryCommands(ctx context.Context, tag string, try func(context.Context, []any) error) (denied []string, err error) {
	for _, template := range slices.Concat(feedCommands, scriptCommands) {
		args := make([]any, len(template))
		for i, a := range template {
			args[i] = a
			if key, isKey := a.(keyName); isKey {
				args[i] = tag + string(key)
			}
		}
		switch err := try(ctx, args); {
		case err == nil, errors.Is(err, redis.Nil), strings.HasPrefix(err.Error(), "NOSCRIPT"):
		case strings.HasPrefix(err.Error(), "NOPERM") && strings.Contains(err.Error(), "'acl"):
			return nil, err // it is the question that is not allowed
		case strings.HasPrefix(err.Error(), "NOPERM"), strings.Contains(strings.ToLower(err.Error()), "no permissions"):
			denied = append(denied, fmt.Sprint(args[0]))
		default:
			return nil, fmt.Errorf("%s: %w", args[0], err)
		}
	}
	return denied, nil
}

func isAnswer(err error) bool {
	_, yes := errors.AsType[redis.Error](err)
	return yes
}

// aclSetUser is what a user of Redis' needs.
func (e *examination) aclSetUser(user string) string {
	if user == "" {
		user = "NAME"
	}
	names := append(rightsOf(scriptCommands, feedCommands), doctorCommands...)
	return fmt.Sprintf("ACL SETUSER %s ~{%s:* +%s", user, e.cfg.Prefix, strings.Join(names, " +"))
}
