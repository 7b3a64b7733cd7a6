package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// scriptCommands are the commands of publishers, nearly all inside their script, which runs with
// its caller's rights. In this order each finds the data that it reads.
var scriptCommands = [][]any{
	{"time"},
	{"hset", hashKey, "f", "1"}, {"hget", hashKey, "f"}, {"hmget", hashKey, "f"},
	{"zadd", setKey, "1", "m"}, {"zscore", setKey, "m"}, {"zrangebyscore", setKey, "-inf", "1", "limit", "0", "1"},
	{"xadd", streamKey, "maxlen", "~", "10", "1-1", "f", "1"}, {"xrevrange", streamKey, "+", "-", "count", "1"},
	{"eval", "return 1", "1", hashKey},
	{"evalsha", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "1", hashKey}, // of "return 1"
	{"hdel", hashKey, "f"}, {"zrem", setKey, "m"}, {"del", streamKey},
}

// strictCommands are those that publishers use in addition, where rules are strict.
var strictCommands = [][]any{
	{"info"}, {"script", "load", "return 1"},
	{"set", textKey, "1"}, {"get", textKey}, {"mset", textKey, "1"}, {"mget", textKey},
	{"sadd", membersKey, "m"}, {"smembers", membersKey}, {"zrange", setKey, "0", "1"},
}

// permitCommands are those of services that ask for permits, as ACL rules name them: nearly all inside
// scripts.
var permitCommands = []string{
	"time", "info", "script|load", "eval", "evalsha", "get", "set", "mget", "append", "del", "smembers", "zadd", "hget", "hmget",
}

// feedCommands are the commands of enforcers and of services that follow the blocklist: they only
// read.
var feedCommands = [][]any{
	{"hmget", hashKey, "f"}, {"hscan", hashKey, "0"}, {"xread", "count", "1", "streams", streamKey, "0-0"},
}

// doctorCommands are this command's own, in addition, as ACL rules name them.
var doctorCommands = []string{"ping", "hlen", "info", "config|get", "acl|whoami", "acl|dryrun"}

// clusterCommands are the commands of any client of a Cluster.
var clusterCommands = []string{"command", "cluster|slots", "cluster|shards"}

// nameOf is a command's name, as ACL rules have it.
func nameOf(c []any) string {
	if c[0] == "script" {
		return fmt.Sprintf("%s|%s", c[0], c[1])
	}
	return fmt.Sprint(c[0])
}

// rightsOf returns the names of the commands, each once.
func rightsOf(lists ...[][]any) (names []string) {
	for _, c := range slices.Concat(lists...) {
		if name := nameOf(c); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// redisUser is the command that creates a Redis user with these rights only. keys is "~" for
// writers, and "%R~", since Redis 7.0, for readers; more are other keys.
func redisUser(user, prefix, keys, more string, names []string) string {
	return fmt.Sprintf("ACL SETUSER %s reset on >PASSWORD %s{%s:*%s +%s", user, keys, prefix, more, strings.Join(names, " +"))
}

type keyName string

const (
	hashKey    keyName = "verdicts"
	setKey     keyName = "expiry"
	streamKey  keyName = "changes"
	textKey    keyName = "text" // of strict limits, as the next one
	membersKey keyName = "members"
)

// checkRights queries the rights by ACL DRYRUN, or tries the commands if that is not available.
func (e *examination) checkRights(ctx context.Context) outcome {
	tag := fmt.Sprintf("{%s:0}:", e.cfg.Prefix)
	user, err := e.cfg.Redis.Do(ctx, "acl", "whoami").Text()
	how := "by ACL DRYRUN"
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
			return found(skip("redis-rights", "no right to use ACL DRYRUN, and --no-write forbids to try the commands"))
		}
		how = "tried on scratch keys"
		tag += "doctor-" + e.random + ":"
		denied, err = e.tryCommands(ctx, tag, func(ctx context.Context, args []any) error { return e.cfg.Redis.Do(ctx, args...).Err() })
		// The commands deleted most of them.
		e.cfg.Redis.Del(context.WithoutCancel(ctx), tag+string(hashKey), tag+string(setKey), tag+string(streamKey), tag+string(textKey), tag+string(membersKey))
	}
	if err != nil {
		return found(fail("redis-rights", "", "%v", err))
	}
	if len(denied) > 0 {
		return found(fail("redis-rights", e.aclSetUser(user), "user %q may not use %s on %s*", user, strings.Join(denied, ", "), tag))
	}
	if e.strict() {
		return found(ok("redis-rights", "all commands of publisher and feed are allowed, also those of strict rules (%s)", how))
	}
	return found(ok("redis-rights", "all commands of publisher and feed are allowed (%s)", how))
}

// tryCommands returns the names of the denied commands. Its error is the first that is not about
// rights.
func (e *examination) tryCommands(ctx context.Context, tag string, try func(context.Context, []any) error) (denied []string, err error) {
	for _, template := range slices.Concat(feedCommands, e.writerCommands()) {
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
			return nil, err // the query itself is denied
		case strings.HasPrefix(err.Error(), "NOPERM"), strings.Contains(strings.ToLower(err.Error()), "no permissions"):
			denied = append(denied, nameOf(args))
		default:
			return nil, fmt.Errorf("%s: %w", args[0], err)
		}
	}
	return denied, nil
}

// strict reports whether the rules are known, and some of them are strict.
func (e *kafkaSide) strict() bool { return e.set != nil && len(e.set.Strict()) > 0 }

// writerCommands are the commands of publishers, in an order in which each finds the data that it reads.
func (e *examination) writerCommands() [][]any {
	if !e.strict() {
		return scriptCommands
	}
	return slices.Concat(strictCommands, scriptCommands)
}

func isAnswer(err error) bool {
	_, yes := errors.AsType[redis.Error](err)
	return yes
}

// aclSetUser is the command that gives a Redis user all rights that are needed.
func (e *examination) aclSetUser(user string) string {
	if user == "" {
		user = "NAME"
	}
	names := append(rightsOf(e.writerCommands(), feedCommands), doctorCommands...)
	slices.Sort(names)
	names = slices.Compact(names)
	return fmt.Sprintf("ACL SETUSER %s ~{%s:* +%s", user, e.cfg.Prefix, strings.Join(names, " +"))
}
