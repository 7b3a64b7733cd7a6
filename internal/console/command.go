package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/tallygate/tallygate/internal/console/session"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/health/watch"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/run/redisconn"
	"github.com/tallygate/tallygate/internal/tools/doctor"
)

const usage = `
tallygate console serves web pages that show an installation: whether each link from producers to
enforcers works, who is blocked and why, the rules and the cluster. It acts through the
aggregator's API only, with the reader's own credential.

  tallygate console --aggregator a:8081,b:8081 --kafka kafka:9092 --redis redis:6379
`

// Command is `tallygate console`: it returns the exit status.
func Command(ctx context.Context, args []string, _ io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	logging.Disable() // the pages show what Redis does; go-redis would log every attempt
	p, about, err := parse(args, stdout, stderr, getenv)
	if err != nil {
		return ops.Exit(stderr, "tallygate console", err)
	}
	return ops.Live(ctx, p.Log, "console", about, p.Run)
}

// parse makes the program, and what the log says about it at its start.
func parse(args []string, stdout, stderr io.Writer, getenv func(string) string) (*Program, []any, error) {
	o := ops.NewOptions("tallygate console", usage, stdout, getenv)
	api, kafka, rds, logs := apiclient.NewOptionsOfMany(o), kafkaconn.NewOptions(o), redisconn.NewOptions(o, redisconn.Usual), o.Log()
	prefix := o.String("prefix", "tallygate", "`name` that all topics, the group and the Redis keys begin with")
	shards := o.Int("shards", 1, "`number` of shards of the blocklist, as the aggregators have it")
	listen := o.String("listen", "127.0.0.1:8090", "the pages on `HOST:PORT` or unix:PATH")
	metrics := o.String("metrics-listen", "127.0.0.1:9093", "Prometheus metrics on `HOST:PORT`, and /healthz, /readyz; keep it private; none turns it off")
	connections := o.Int("max-connections", 1000, "`number` of connections that --listen keeps open at once; idle ones give way to new ones, further ones wait")
	tls, sessions, keys, token := o.ServerTLS(), session.NewOptions(o), newKeysOptions(o), newEnforcerToken(o)
	if err := o.ParseOnly(args); err != nil {
		return nil, nil, err
	}
	p := &Program{Registry: ops.NewRegistry("console"), Settings: o.Settings}
	var errs [8]error
	p.Log, errs[0] = logs.Build(stderr)
	k, err := kafka.Build()
	errs[1] = err
	redis, err := rds.Build()
	errs[2] = err
	p.API, errs[3] = api.OpenAll()
	if *shards < 1 || *connections < 1 {
		errs[4] = fmt.Errorf("--shards %d, --max-connections %d: want at least 1", *shards, *connections)
	}
	errs[5] = sessions.Fill(&p.Session)
	if errs[3] == nil { // both read --ca
		p.Enforcers, errs[7] = token.over(api, &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute})
	}
	follows := KeysConfig{Kafka: k, Redis: redis, Prefix: *prefix, Logger: p.Log, Enforcers: p.Enforcers}
	if errs[6] = keys.fill(&follows); errors.Join(errs[:]...) == nil {
		p.Keys, errs[6] = NewKeys(follows)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, nil, &ops.UsageError{Err: err}
	}
	redisconn.LogTo(p.Log)
	p.Health = watch.New(watch.Config{Kafka: k, Redis: redis, API: p.API, Prefix: *prefix, Shards: *shards, Enforcers: p.Enforcers, Logger: p.Log})
	p.Doctor = doctor.Config{Kafka: k, Redis: redis, Prefix: *prefix, Shards: *shards, NoWrite: true}
	config, err := tls.Build(p.Log)
	if err != nil {
		return nil, nil, &ops.UsageError{Err: err}
	}
	p.Session.Listen, p.Session.TLS = *listen, config != nil
	if err := p.listen(*listen, *metrics); err != nil {
		return nil, nil, err
	}
	p.HTTP = ops.Guard(p.HTTP, *connections, config, "h2", "http/1.1")
	about := []any{"kafka", k.Brokers, "redis", rds.Addresses(), "prefix", *prefix}
	return p, about, o.WatchCertificates(p.Registry)
}

// listen opens the listeners.
func (p *Program) listen(pages, metrics string) (err error) {
	if p.HTTP, err = ops.Listen("listen", pages); err != nil {
		return err
	}
	if metrics != "none" {
		p.Metrics, err = ops.Listen("metrics-listen", metrics)
	}
	return err
}
