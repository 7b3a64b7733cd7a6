package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/internal/run/health/ask"
)

// reachRedis pings, and reads the clock.
func (e *examination) reachRedis(ctx context.Context) outcome {
	if e.cfg.Redis == nil {
		return found(skip("redis", "no --redis was given"))
	}
	var clocks []health.Offset
	primaries, lacks := 0, false
	err := ask.EachPrimary(ctx, e.cfg.Redis, func(ctx context.Context, name string, c redis.Cmdable) error {
		switch err := c.Ping(ctx).Err(); { // the first command also connects
		case err != nil && strings.HasPrefix(err.Error(), "NOPERM"):
			lacks = true
		case err != nil:
			return err
		}
		primaries++
		before := time.Now()
		now, err := c.Time(ctx).Result()
		if err == nil {
			margin := time.Since(before) / 2
			clocks = append(clocks, health.Offset{Name: name, Ahead: now.Sub(before.Add(margin)), Margin: margin})
		}
		return nil
	})
	if err == nil && primaries == 0 {
		err = fmt.Errorf("the Cluster has no primary")
	}
	var servers []health.Server
	if err == nil {
		servers, err = ask.Servers(ctx, e.cfg.Redis)
	}
	if err != nil {
		o := e.cfg.look()
		o.Redis.Took(health.Redis{}, err, o.Now)
		return found(judged("redis", o)...)
	}
	detail := "reachable"
	if primaries > 1 {
		detail = words.Plural(primaries, "primary node") + " reachable"
	}
	result := ok("redis", "%s", detail)
	if lacks {
		result = warn("redis", "give the doctor its own user (--redis-user tallygate-doctor, in a config file the section doctor); `tallygate doctor --acls` prints it",
			"%s; this user has no rights of the doctor's, so that less can be said", detail)
	}
	return outcome{results: []Result{result}, keep: func() {
		e.redisUp, e.servers = true, servers
		e.clocks = append(e.clocks, clocks...)
	}}
}

func (e *examination) checkRedisVersion(context.Context) outcome {
	var versions []string
	var results []Result
	for _, s := range e.servers {
		switch {
		case s.Version == "":
			continue
		case !atLeastVersion(s.Version, 6, 2):
			results = append(results, fail("redis-version", "upgrade to Redis 6.2 or later, or to Valkey", "%s has version %s", s.Name, s.Version))
		case e.strict() && !atLeastVersion(s.Version, 7, 0):
			results = append(results, fail("redis-version", "upgrade to Redis 7 or later, or to Valkey", "%s has version %s, and strict rules need 7: an older one grants no permits", s.Name, s.Version))
		}
		shown := "Redis " + s.Version
		if s.Valkey != "" {
			shown = "Valkey " + s.Valkey
		}
		versions = append(versions, shown)
	}
	slices.Sort(versions)
	switch versions := slices.Compact(versions); {
	case len(results) > 0:
		return found(results...)
	case len(versions) == 0:
		return found(skip("redis-version", "no right to read it (INFO): make sure that it is 6.2 or later"))
	default:
		return found(ok("redis-version", "%s", strings.Join(versions, ", ")))
	}
}

func atLeastVersion(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	a, err := strconv.Atoi(parts[0])
	if err != nil || len(parts) < 2 {
		return false
	}
	b, err := strconv.Atoi(parts[1])
	return err == nil && (a > major || a == major && b >= minor)
}

// lookAtServers observes the primaries.
func lookAtServers(cfg Config, servers []health.Server) *health.Observations {
	o := cfg.look()
	o.Redis.Took(health.Redis{Servers: servers}, nil, o.Now)
	return o
}

// checkRole refuses replicas: they are behind, and cannot be written.
func (e *examination) checkRole(context.Context) outcome {
	results := judged("redis-role", lookAtServers(e.cfg, e.servers))
	switch known := slices.ContainsFunc(e.servers, func(s health.Server) bool { return s.Role != "" }); {
	case len(results) > 0:
		return found(results...)
	case !known:
		return found(skip("redis-role", "no right to read it (INFO): make sure that it is not a replica"))
	}
	return found(ok("redis-role", "primary"))
}

// checkPolicy makes sure that Redis evicts nothing, and has room. Some services show the policy by one command only.
func (e *examination) checkPolicy(ctx context.Context) outcome {
	servers := slices.Clone(e.servers)
	err := ask.EachPrimary(ctx, e.cfg.Redis, func(ctx context.Context, name string, c redis.Cmdable) error {
		i := slices.IndexFunc(servers, func(s health.Server) bool { return s.Name == name })
		if i < 0 || servers[i].Policy != "" {
			return nil
		}
		config, err := c.ConfigGet(ctx, "maxmemory-policy").Result()
		if err != nil && !hidden(err) {
			return err
		}
		servers[i].Policy = config["maxmemory-policy"]
		return nil
	})
	results := judged("redis-policy", lookAtServers(e.cfg, servers))
	switch known := slices.ContainsFunc(servers, func(s health.Server) bool { return s.Policy != "" }); {
	case err != nil:
		return found(fail("redis-policy", "", "%v", err))
	case len(results) > 0:
		return found(worst(results)...)
	case !known:
		return found(warn("redis-policy", "check the service's settings", "no right to read maxmemory-policy: make sure that it is noeviction"))
	}
	return found(ok("redis-policy", health.NoEviction))
}
