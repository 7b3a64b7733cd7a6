package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/internal/console/blocks"
	"github.com/tallygate/tallygate/internal/console/keyref"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/kafkaconn/clients"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/tools/auditlog"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// KeysConfig configures what the pages about keys read in the background.
type KeysConfig struct {
	Kafka  *kafkaconn.Kafka
	Redis  redis.UniversalClient
	Prefix string // of topics and Redis keys; "" is tallygate
	// Secrets make references and masks, the newest first; each has at least 16 bytes. Without any it is a random
	// one: then links to keys end with the process, and other consoles do not know them.
	Secrets [][]byte
	// Plain are dimensions whose values are not masked, beside api and all.
	Plain []string
	// Ticket is the pattern of tickets, for forms; "" is any text.
	Ticket string
	// Enforcers asks enforcers; nil trusts the system's authorities.
	Enforcers http.RoundTripper
	Logger    *slog.Logger     // nil is slog.Default()
	Now       func() time.Time // nil is time.Now
}

// Keys follows the blocklist and the audit, and knows how keys are shown. Make it with NewKeys.
type Keys struct {
	refs   *keyref.Refs
	list   *blocks.List
	feed   *blocklist.Feed
	audit  *auditlog.Follower
	log    kafkalog.Config
	topic  string // of the audit
	redis  redis.UniversalClient
	prefix string
	ticket string
	checks *apiclient.Enforcers
}

// NewKeys checks the configuration. It asks nothing yet.
func NewKeys(c KeysConfig) (*Keys, error) {
	if c.Kafka == nil || c.Redis == nil {
		return nil, errors.New("console: Kafka and Redis are required")
	}
	prefix := cmp.Or(c.Prefix, "tallygate")
	if len(c.Secrets) == 0 {
		c.Secrets = [][]byte{[]byte(rand.Text())}
	}
	k := &Keys{list: blocks.New(c.Now), log: clients.Log(c.Kafka, "tallygate-console"), topic: prefix + ".audit", redis: c.Redis, prefix: prefix, ticket: c.Ticket}
	var errs [3]error
	k.refs, errs[0] = keyref.New(keyref.Config{Secret: c.Secrets[0], Older: c.Secrets[1:], Plain: c.Plain})
	k.feed, errs[1] = blocklist.NewFeed(blocklist.FeedConfig{Redis: c.Redis, Prefix: prefix, Shards: blocklist.AnyShards, Logger: c.Logger})
	k.audit, errs[2] = auditlog.NewFollower(auditlog.FollowConfig{Kafka: k.log, Topic: k.topic, Logger: c.Logger})
	if c.Enforcers == nil {
		c.Enforcers = &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute}
	}
	k.checks = apiclient.NewEnforcers(c.Enforcers)
	return k, errors.Join(errs[:]...)
}

// run follows until ctx ends.
func (k *Keys) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return ops.IgnoreCanceled(ctx, k.feed.Run(ctx, k.list)) })
	g.Go(func() error { return ops.IgnoreCanceled(ctx, k.audit.Run(ctx)) })
	err := g.Wait()
	k.checks.CloseIdleConnections()
	return err
}

// keys are those of the console; a page that needs them says so where there are none.
func (r *request) keys() (*Keys, error) {
	if k := r.server.Keys; k != nil {
		return k, nil
	}
	return nil, &Problem{Status: http.StatusNotImplemented, Title: "This console does not follow the blocklist", Detail: "It was started without Kafka or Redis.",
		Do: "Start it with --kafka and --redis."}
}
