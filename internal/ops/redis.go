package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// LogRedis sends what the Redis library says by itself to log: it writes to standard error
// otherwise, past the log's format. Outages are told by those who meet them.
func LogRedis(log *slog.Logger) { redis.SetLogger(redisLog{log}) }

type redisLog struct{ log *slog.Logger }

func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	l.log.DebugContext(ctx, "redis: "+fmt.Sprintf(format, args...))
}

// RedisOptions are the options that make a connection to Redis.
type RedisOptions struct {
	o                          *Options
	addrs                      *List
	user, passwordFile, master string
	sentinelUser, sentinelFile string
	db                         int
	cluster                    bool
	tls                        tlsOptions
}

// Redis adds the Redis options.
func (o *Options) Redis(def ...string) *RedisOptions {
	r := &RedisOptions{o: o}
	r.addrs = o.List("redis", def, "Redis, `HOST:PORT,…`: one server, the nodes of a Cluster, or the Sentinels")
	o.StringVar(&r.user, "redis-user", "", "Redis `user`; the password is in TALLYGATE_REDIS_PASSWORD or in --redis-password-file")
	o.StringVar(&r.passwordFile, "redis-password-file", "", "`FILE` with Redis' password")
	o.StringVar(&r.master, "redis-master", "", "`name` of the master that the Sentinels watch")
	o.StringVar(&r.sentinelUser, "redis-sentinel-user", "", "`user` at the Sentinels; the password is in TALLYGATE_REDIS_SENTINEL_PASSWORD or in --redis-sentinel-password-file")
	o.StringVar(&r.sentinelFile, "redis-sentinel-password-file", "", "`FILE` with the Sentinels' password, which is not Redis' own")
	o.BoolVar(&r.cluster, "redis-cluster", false, "the one address is that of a Cluster; several are, without --redis-master, anyway")
	o.IntVar(&r.db, "redis-db", 0, "`number` of the database")
	r.tls.add(o, "redis")
	return r
}

// Given reports whether there is a Redis to connect to.
func (r *RedisOptions) Given() bool { return len(*r.addrs) > 0 }

// Build makes the client; it connects when it is first used.
func (r *RedisOptions) Build() (redis.UniversalClient, error) {
	password, err := r.o.Secret("TALLYGATE_REDIS_PASSWORD", r.passwordFile)
	sentinels, serr := r.o.Secret("TALLYGATE_REDIS_SENTINEL_PASSWORD", r.sentinelFile)
	t, terr := r.tls.build()
	if err := errors.Join(err, serr, terr, r.validate()); err != nil {
		return nil, err
	}
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: *r.addrs, Username: r.user, Password: password, DB: r.db,
		MasterName: r.master, SentinelUsername: r.sentinelUser, SentinelPassword: sentinels, IsClusterMode: r.cluster, TLSConfig: t,
		// Only some services send notices of their maintenance; asking for them costs every connection a question.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}), nil
}

func (r *RedisOptions) validate() error {
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
