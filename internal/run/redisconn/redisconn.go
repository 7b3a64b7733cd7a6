// Package redisconn turns the options for Redis into a client: of one server, of Sentinels or of a
// Cluster. Passwords and certificates are read again at each connection.
package redisconn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/pipeline/blocklist"
)

// Usual is the address of Redis for programs that cannot do without it, when none is given.
const Usual = "127.0.0.1:6379"

// LogTo sends what the Redis library says by itself to log: otherwise it writes to standard error,
// past the log's format. Whoever meets an outage logs it.
func LogTo(log *slog.Logger) { redis.SetLogger(libraryLog{log}) }

type libraryLog struct{ log *slog.Logger }

func (l libraryLog) Printf(ctx context.Context, format string, args ...any) {
	l.log.DebugContext(ctx, "message from the Redis library", "detail", fmt.Sprintf(format, args...))
}

// Options are the options that make a client.
type Options struct {
	o                          *ops.Options
	addrs                      *ops.List
	user, passwordFile, master string
	sentinelUser, sentinelFile string
	db                         int
	cluster                    bool
	tls                        *ops.ClientTLSOptions

	access ops.Access // whether Redis lets us in
}

// NewOptions adds the options for Redis to a command's.
func NewOptions(o *ops.Options, def ...string) *Options {
	r := &Options{o: o}
	r.addrs = o.List("redis", def, "Redis, `HOST:PORT,…`: one server, the nodes of a Cluster, or the Sentinels")
	o.StringVar(&r.user, "redis-user", "", "Redis `user`; the password is in TALLYGATE_REDIS_PASSWORD or in --redis-password-file")
	o.StringVar(&r.passwordFile, "redis-password-file", "", "`FILE` with Redis' password")
	o.StringVar(&r.master, "redis-master", "", "`name` of the master that the Sentinels watch")
	o.StringVar(&r.sentinelUser, "redis-sentinel-user", "", "`user` at the Sentinels; the password is in TALLYGATE_REDIS_SENTINEL_PASSWORD or in --redis-sentinel-password-file")
	o.StringVar(&r.sentinelFile, "redis-sentinel-password-file", "", "`FILE` with the Sentinels' password, which is not Redis' own")
	o.BoolVar(&r.cluster, "redis-cluster", false, "the single address is that of a Cluster; several addresses without --redis-master always are")
	o.IntVar(&r.db, "redis-db", 0, "`number` of the database")
	r.tls = o.ClientTLS("redis")
	return r
}

// Given reports whether there is a Redis to connect to.
func (r *Options) Given() bool { return len(*r.addrs) > 0 }

// Addresses returns Redis' addresses.
func (r *Options) Addresses() []string { return slices.Clone(*r.addrs) }

// Build makes the client; it connects when it is first used.
func (r *Options) Build() (redis.UniversalClient, error) {
	password := func() (string, error) { return r.o.Secret("TALLYGATE_REDIS_PASSWORD", r.passwordFile) }
	first, err := password()
	sentinelSecret := func() (string, error) { return r.o.Secret("TALLYGATE_REDIS_SENTINEL_PASSWORD", r.sentinelFile) }
	sentinels, serr := sentinelSecret()
	t, terr := r.tls.Build()
	if err := errors.Join(err, serr, terr, r.validate()); err != nil {
		return nil, err
	}
	var rotated *sentinelPassword
	if r.sentinelFile != "" {
		rotated, sentinels = newSentinelPassword(sentinelSecret)
	}
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: *r.addrs, Username: r.user, Password: first, DB: r.db,
		MasterName: r.master, SentinelUsername: r.sentinelUser, SentinelPassword: sentinels, IsClusterMode: r.cluster, TLSConfig: t,
		// The next two come before what is above: they read the files again at each connection.
		CredentialsProviderContext: func(context.Context) (string, string, error) {
			secret, err := password()
			if err != nil {
				err = &ops.Refusal{Err: err}
			}
			return r.user, secret, err
		},
		Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := r.dial(ctx, network, address)
			if err != nil || rotated == nil {
				return conn, err
			}
			return &sentinelConn{Conn: conn, password: rotated}, nil
		},
		// Only some services send notices of their maintenance; asking for them costs every
		// connection a question.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	client.AddHook(noteAccess{&r.access})
	return client, nil
}

func (r *Options) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, ops.DialWithin)
	defer cancel()
	return r.tls.Dial(ctx, &net.Dialer{KeepAlive: keepAlive}, network, address)
}

// keepAlive is that of the library's own connections.
const keepAlive = 5 * time.Minute

// Ready returns why Redis does not let us in, once that has lasted.
func (r *Options) Ready() error { return r.access.Ready("Redis") }

// Trouble returns what is wrong with Redis, for a status: that it does not let us in, else the outage that what
// uses it has met; nil if all is well.
func (r *Options) Trouble(met blocklist.Outage) *api.Trouble {
	if r != nil {
		if since, why := r.access.Refused(); why != nil {
			return &api.Trouble{Since: since.UTC(), Reason: string(blocklist.ErrorAuth), Error: why.Error()}
		}
	}
	if met.Err == nil {
		return nil
	}
	return &api.Trouble{Since: met.Since.UTC(), Reason: string(met.Reason), Error: met.Err.Error()}
}

// WatchAccess logs when Redis refuses us, and tries again meanwhile, until ctx ends.
func (r *Options) WatchAccess(ctx context.Context, log *slog.Logger, client redis.UniversalClient) {
	r.access.Run(ctx, "Redis", log, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, ops.DialWithin)
		defer cancel()
		return refusal(client.Ping(ctx).Err())
	})
}

// noteAccess notes what each command says of whether Redis lets us in.
type noteAccess struct{ access *ops.Access }

// DialHook sees the connections to Redis, and not those to Sentinels, which have a client of their
// own.
func (noteAccess) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := next(ctx, network, address)
		return unlessSentinel(conn), err
	}
}

// ProcessHook looks at a command's end.
func (h noteAccess) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.access.Note(refusal(err))
		return err
	}
}

// ProcessPipelineHook looks at a pipeline's end.
func (h noteAccess) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		h.access.Note(refusal(err))
		return err
	}
}

// refusal makes a Refusal of an error that says that Redis does not know us; any other answer of
// Redis' is nil, for it let us in.
func refusal(err error) error {
	var answer redis.Error
	switch {
	case redis.IsAuthError(err):
		return &ops.Refusal{Err: err}
	case errors.As(err, &answer):
		return nil
	}
	return ops.AsRefusal(err)
}

func (r *Options) validate() error {
	var errs []error
	isCluster := r.cluster || r.master == "" && len(*r.addrs) > 1
	if r.cluster && r.master != "" {
		errs = append(errs, errors.New("--redis-cluster and --redis-master: Sentinels watch single servers; a Cluster needs none"))
	}
	if isCluster && r.db != 0 {
		errs = append(errs, fmt.Errorf("--redis-db %d: a Cluster has the database 0 only", r.db))
	}
	if r.master == "" && (r.sentinelUser != "" || r.sentinelFile != "") {
		errs = append(errs, errors.New("--redis-sentinel-user and --redis-sentinel-password-file are for Sentinels: which master do they watch? --redis-master"))
	}
	return errors.Join(errs...)
}
