package doctor

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// checkPolicy makes sure that Redis evicts nothing, and has room.
func (e *examination) checkPolicy(ctx context.Context) outcome {
	var results []Result
	known := false
	err := e.eachPrimary(ctx, func(ctx context.Context, name string, c redis.Cmdable) error {
		memory, err := info(ctx, c, "memory")
		if err != nil {
			return err
		}
		policy := memory["maxmemory_policy"]
		if policy == "" {
			config, err := c.ConfigGet(ctx, "maxmemory-policy").Result()
			if err != nil && !hidden(err) {
				return err
			}
			policy = config["maxmemory-policy"]
		}
		known = known || policy != ""
		if policy != "" && policy != "noeviction" {
			results = append(results, fail("redis-policy", "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf (or in the service's settings)",
				"%s: maxmemory-policy is %s: when its memory is full, blocks are lost silently", name, policy))
		}
		if r, full := fullness(name, memory); full {
			results = append(results, r)
		}
		return nil
	})
	switch {
	case err != nil:
		return found(fail("redis-policy", "", "%v", err))
	case len(results) > 0:
		return found(worst(results)...)
	case !known:
		return found(warn("redis-policy", "check the service's settings", "no right to read maxmemory-policy: make sure that it is noeviction"))
	}
	return found(ok("redis-policy", "noeviction"))
}

// fullness warns from 80% on: a full Redis without eviction refuses new blocks.
func fullness(name string, memory map[string]string) (Result, bool) {
	used, _ := strconv.ParseInt(memory["used_memory"], 10, 64)
	most, _ := strconv.ParseInt(memory["maxmemory"], 10, 64)
	if most <= 0 || used*100 < most*80 {
		return Result{}, false
	}
	r := warn("redis-policy", "raise maxmemory, or move other data out of this Redis", "%s uses %d of %d bytes: when it is full, it refuses new blocks", name, used, most)
	if used >= most {
		r.Status = Fail
	}
	return r, true
}
