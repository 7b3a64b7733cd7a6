package blocklist

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrEviction is returned by a Publisher whose Redis may evict entries when its memory is full: blocked
// users would be let through without a trace.
var ErrEviction = errors.New("blocklist: Redis' maxmemory-policy is not noeviction")

// primariesOnly refuses clients that are set to read from replicas, as far as that can be seen.
func primariesOnly(client redis.UniversalClient) error {
	if c, ok := client.(*redis.ClusterClient); ok {
		if o := c.Options(); o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			return errors.New("blocklist: the Redis client reads from replicas (ReadOnly, RouteByLatency or RouteRandomly), want primaries only")
		}
	}
	return nil
}

// check waits for Redis to answer and returns ErrAuth when it refuses to, ErrEviction when it may evict, and ErrShards when what it has
// is a blocklist of another number of shards. Managed services often hide the policy; then it says so and goes on.
func (p *Publisher) check(ctx context.Context) error {
	pause := newPause()
	for {
		err := eachPrimary(ctx, p.cfg.Redis, policyOf)
		if mayNotRead(err) {
			p.cfg.Logger.Warn("can't read Redis' maxmemory-policy: make sure that it is noeviction", "error", err)
			err = nil
		}
		if err == nil {
			err = p.store.checkShards(ctx)
		}
		switch {
		case err == nil:
			p.redis.worked(noOffset)
			return nil
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrEviction), errors.Is(err, ErrShards):
			return err
		case redis.IsAuthError(err):
			return fmt.Errorf("%w: %w", ErrAuth, err)
		}
		p.redis.failed(noOffset, err)
		if !pause.Wait(ctx) {
			return nil
		}
	}
}

func policyOf(ctx context.Context, client redis.Cmdable) error {
	config, err := client.ConfigGet(ctx, "maxmemory-policy").Result()
	if err != nil {
		return fmt.Errorf("read Redis' maxmemory-policy: %w", err)
	}
	if policy := config["maxmemory-policy"]; policy != "" && policy != "noeviction" {
		return fmt.Errorf("%w but %s: set it with CONFIG SET maxmemory-policy noeviction, and in redis.conf", ErrEviction, policy)
	}
	return nil
}

func eachPrimary(ctx context.Context, client redis.UniversalClient, do func(context.Context, redis.Cmdable) error) error {
	if c, ok := client.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return do(ctx, c) })
	}
	return do(ctx, client)
}

// mayNotRead reports whether Redis answered that this client may not use the command, or doesn't have it.
func mayNotRead(err error) bool {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return false
	}
	text := strings.ToLower(answer.Error())
	return strings.HasPrefix(text, "noperm") || strings.Contains(text, "unknown command") || strings.Contains(text, "unknown subcommand")
}
