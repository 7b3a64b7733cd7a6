package publish

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/internal/failure"
)

// noPartition stands for the publisher itself among the partitions that an outage is about.
const noPartition = -1

// ErrEviction is returned by a Publisher whose Redis may evict entries when its memory is full:
// blocked users would get through, and nothing would show it.
var ErrEviction = errors.New("blocklist: Redis' maxmemory-policy is not noeviction")

// check waits until Redis answers. It returns ErrAuth if Redis refuses, ErrEviction if it may
// evict, and ErrShards if its blocklist has another number of shards. Managed services often hide
// the policy; then check logs that and continues.
func (p *Publisher) check(ctx context.Context) error {
	pause := failure.NewPause()
	for {
		err := layout.EachPrimary(ctx, p.cfg.Redis, policyOf)
		if mayNotRead(err) {
			p.cfg.Logger.Warn("cannot read Redis' maxmemory-policy; make sure that it is noeviction", "error", err)
			err = nil
		}
		if err == nil {
			err = p.store.CheckShards(ctx)
		}
		switch {
		case err == nil:
			p.redis.Worked(noPartition)
			return nil
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrEviction), errors.Is(err, failure.ErrShards):
			return err
		case redis.IsAuthError(err):
			return fmt.Errorf("%w: %w", failure.ErrAuth, err)
		}
		p.redis.Failed(noPartition, err)
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

// mayNotRead reports whether Redis answered that this client may not use the command, or doesn't
// have it.
func mayNotRead(err error) bool {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return false
	}
	text := strings.ToLower(answer.Error())
	return strings.HasPrefix(text, "noperm") || strings.Contains(text, "unknown command") || strings.Contains(text, "unknown subcommand")
}
