package tallygate

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

// Config names Redis and Kafka. One of Redis and RedisClient is required; all else is optional.
type Config struct {
	// Redis is the address of the blocklist: host:port, or a URL such as rediss://user:password@redis:6379/0. rediss
	// is TLS, by the system's certificates. Take the password from a secret, not from source code; none is ever
	// logged.
	Redis string
	// RedisClient is used instead of Redis: for Sentinel, Cluster, certificates of your own, or passwords
	// that are read again. It must read from primaries only. The caller closes it, after Close.
	RedisClient redis.UniversalClient
	// Prefix begins every name of the installation in Redis and Kafka; "" is tallygate.
	Prefix string
	// Name names this service for operators: the Guard announces itself in Redis with it, beside its version and its
	// table's delay. "" is the host's name and the process.
	Name string
	// NoPresence announces nothing.
	NoPresence bool
	// Shards is the number of the blocklist's shards; 0: the Guard asks Redis.
	Shards int

	// Kafka are addresses of brokers, host:port. Without any no events are sent.
	Kafka []string
	// Emitter has the emitter's other settings: TLS, SASL, MaxEvents, OnDrop and so on. Its Brokers, Prefix
	// and Logger are those of this Config.
	Emitter emit.Config

	// Table has the table's settings: what is answered while it is stale (OnStale, Rules), OffFile and so
	// on. Its Shards and Logger are those of this Config.
	Table enforce.Config

	// Admit makes what asks for permits, for rules with `strict` and with `scope: instance`:
	//
	//	Admit: admit.With(admit.Config{})
	//
	// nil asks for none: such rules then count what happened, like others, and may be exceeded. It is a
	// function so that services without such rules do not link the compiler of rules.
	Admit func(client redis.UniversalClient, prefix string, log *slog.Logger) (enforce.RunningAdmitter, error)

	// Metrics, if set, gets the Guard's metrics: see NewCollector.
	Metrics prometheus.Registerer
	// Logger is told what goes wrong; nil is slog.Default().
	Logger *slog.Logger
}

func (c *Config) setDefaults() {
	c.Prefix = cmp.Or(c.Prefix, "tallygate")
	c.Logger = cmp.Or(c.Logger, slog.Default())
}

// validate finds what the parts do not find by themselves.
func (c *Config) validate() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("tallygate: Config."+format, args...))
		}
	}
	wrong(c.Redis == "" && c.RedisClient == nil, "Redis is empty: give the address of the Redis that the aggregators publish to, or a RedisClient")
	wrong(c.Redis != "" && c.RedisClient != nil, "Redis and RedisClient are both set: give one of them")
	wrong(c.Shards < 0, "Shards is %d: give the blocklist's number, or 0 to have it asked for", c.Shards)
	wrong(c.Table.Shards != 0, "Table.Shards is set: set Config.Shards, or nothing to have Redis asked for it")
	wrong(len(c.Emitter.Brokers) > 0, "Emitter.Brokers is set: set Config.Kafka")
	wrong(c.Emitter.Prefix != "" && c.Emitter.Prefix != c.Prefix, "Emitter.Prefix is %q: set Config.Prefix, so that events and verdicts are of one installation", c.Emitter.Prefix)
	wrong(len(c.Kafka) == 0 && c.Emitter.Topic != "", "Emitter.Topic is set without Config.Kafka: no events would be sent")
	return errors.Join(errs...)
}

// client is the one that is given, or a new one; owned says that the Guard closes it.
func (c *Config) client() (client redis.UniversalClient, owned bool, err error) {
	if c.RedisClient != nil {
		return c.RedisClient, false, nil
	}
	o, err := redisOptions(c.Redis)
	if err != nil {
		return nil, false, err
	}
	return redis.NewClient(o), true, nil
}

// redisOptions reads an address or a URL. Errors never have the text: a password may be in it.
func redisOptions(text string) (*redis.Options, error) {
	if !strings.Contains(text, "://") {
		text = "redis://" + text
	}
	const want = "want host:port, or a URL such as rediss://user:password@redis:6379/0"
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("tallygate: Config.Redis is no URL (a password with characters such as / # % needs them percent-encoded): " + want)
	}
	o, err := redis.ParseURL(text)
	if err != nil {
		return nil, fmt.Errorf("tallygate: Config.Redis is %s: %s", u.Redacted(), want)
	}
	// Only some services send notices of their maintenance; asking costs every connection a question.
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o, nil
}
