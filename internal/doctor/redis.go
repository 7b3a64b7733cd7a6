package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// eachPrimary calls do for every primary of a Cluster, or for the single server.
func (e *examination) eachPrimary(ctx context.Context, do func(ctx context.Context, name string, c redis.Cmdable) error) error {
	cluster, isCluster := e.cfg.Redis.(*redis.ClusterClient)
	if !isCluster {
		return do(ctx, "Redis", e.cfg.Redis)
	}
	var mu sync.Mutex // one at a time, so that do needs no lock
	return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		return do(ctx, "Redis "+c.Options().Addr, c)
	})
}

// reachRedis pings, and reads the clock.
func (e *examination) reachRedis(ctx context.Context) outcome {
	if e.cfg.Redis == nil {
		return found(skip("redis", "no --redis was given"))
	}
	var clocks []clock
	primaries, lacks := 0, false
	err := e.eachPrimary(ctx, func(ctx context.Context, name string, c redis.Cmdable) error {
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
			clocks = append(clocks, clock{name, now.Sub(before.Add(margin)), margin})
		}
		return nil
	})
	if err == nil && primaries == 0 {
		err = fmt.Errorf("the Cluster has no primary")
	}
	if err != nil {
		return found(fail("redis", redisFix(err), "cannot reach it: %v", err))
	}
	detail := "reachable"
	if primaries > 1 {
		detail = plural(primaries, "primary node") + " reachable"
	}
	result := ok("redis", "%s", detail)
	if lacks {
		result = warn("redis", "give the doctor its own user (--redis-user tallygate-doctor, in a config file the section doctor); `tallygate doctor --acls` prints it",
			"%s; this user has no rights of the doctor's, so that less can be said", detail)
	}
	return outcome{results: []Result{result}, keep: func() {
		e.redisUp = true
		e.clocks = append(e.clocks, clocks...)
	}}
}

func redisFix(err error) string {
	switch text := err.Error(); {
	case strings.HasPrefix(text, "NOAUTH"), strings.HasPrefix(text, "WRONGPASS"), strings.HasPrefix(text, "NOPERM"):
		return "see --redis-user, --redis-password-file and TALLYGATE_REDIS_PASSWORD"
	case strings.HasPrefix(text, "MOVED"), strings.Contains(text, "cluster support disabled"):
		return "if it is a Cluster, use --redis-cluster, or list all nodes in --redis"
	}
	return "check --redis, that Redis runs, and that its port is open from here; a listener with TLS needs --redis-tls"
}

// info returns a section of INFO; empty without the right to read it.
func info(ctx context.Context, c redis.Cmdable, section string) (map[string]string, error) {
	text, err := c.Info(ctx, section).Result()
	if err != nil {
		if _, answered := err.(redis.Error); answered { //nolint:errorlint // an error reply is never wrapped
			return nil, nil
		}
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, isField := strings.Cut(strings.TrimSpace(line), ":"); isField {
			fields[k] = v
		}
	}
	return fields, nil
}

func (e *examination) checkRedisVersion(ctx context.Context) outcome {
	var versions []string
	var results []Result
	err := e.eachPrimary(ctx, func(ctx context.Context, name string, c redis.Cmdable) error {
		fields, err := info(ctx, c, "server")
		version := fields["redis_version"]
		if err != nil || version == "" {
			return err
		}
		shown := "Redis " + version
		if v := fields["valkey_version"]; v != "" {
			shown = "Valkey " + v
		}
		versions = append(versions, shown)
		if !atLeastVersion(version, 6, 2) {
			results = append(results, fail("redis-version", "upgrade to Redis 6.2 or later, or to Valkey", "%s has version %s", name, version))
		} else if e.strict() && !atLeastVersion(version, 7, 0) {
			results = append(results, fail("redis-version", "upgrade to Redis 7 or later, or to Valkey", "%s has version %s, and strict rules need 7: an older one grants no permits", name, version))
		}
		return nil
	})
	slices.Sort(versions)
	switch versions := slices.Compact(versions); {
	case err != nil:
		return found(fail("redis-version", "", "%v", err))
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

// checkRole refuses replicas: they are behind, and cannot be written.
func (e *examination) checkRole(ctx context.Context) outcome {
	var results []Result
	known := false
	err := e.eachPrimary(ctx, func(ctx context.Context, name string, c redis.Cmdable) error {
		fields, err := info(ctx, c, "replication")
		if err != nil || fields["role"] == "" {
			return err
		}
		known = true
		switch {
		case fields["role"] != "master":
			results = append(results, fail("redis-role", fmt.Sprintf("use its primary: --redis %s:%s, or the Sentinels with --redis-master", fields["master_host"], fields["master_port"]),
				"%s is a replica: it cannot be written, and enforcers that read it would be behind", name))
		case fields["loading"] == "1" || fields["master_sync_in_progress"] == "1":
			results = append(results, warn("redis-role", "wait", "%s is loading its data", name))
		}
		return nil
	})
	switch {
	case err != nil:
		return found(fail("redis-role", "", "%v", err))
	case len(results) > 0:
		return found(results...)
	case !known:
		return found(skip("redis-role", "no right to read it (INFO): make sure that it is not a replica"))
	}
	return found(ok("redis-role", "primary"))
}
