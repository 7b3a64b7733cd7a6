// Package notify is tallygate notify: it tells people what happens, by webhook, Slack, Teams, Alertmanager or
// e-mail. docs/notify.md is its page; docs/adr/0018 says why it is a program of its own.
package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/base/logonce"
	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/internal/notify/config"
	"github.com/tallygate/tallygate/internal/notify/note"
	"github.com/tallygate/tallygate/internal/notify/receive"
	"github.com/tallygate/tallygate/internal/notify/source"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/run/redisconn"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// Program is the notifier. Set its fields, then call Run once.
type Program struct {
	File        string // the configuration
	Kafka       *kafkaconn.Kafka
	Prefix      string
	API         *api.Client
	Redis       redis.UniversalClient // nil: there is none
	RedisAccess *redisconn.Options    // nil: its refusals are not watched
	Getenv      func(string) string
	Metrics     net.Listener // nil: none
	Registry    *prometheus.Registry
	Log         *slog.Logger
	DryRun      io.Writer // where messages are written instead of being sent; nil: they are sent

	Settings func() []api.Setting // the options, for GET /v1/status; nil: it has none

	metrics *metrics
	blocks  source.Blocks
	feed    sync.Once

	mu      sync.Mutex
	text    []byte // of the file, as it was read last
	current *config.Config
	broken  error // why the file is not taken; nil: it is
	running map[string]*receiver
	told    map[string]*told // by receiver
}

// receiver is one that is told, with what stops it.
type receiver struct {
	is     *config.Receiver
	routes []*config.Route
	link   string
	worker *worker
	stop   context.CancelFunc
	ended  chan struct{}
}

// reloadEvery is the interval between looks at the file.
const reloadEvery = 2 * time.Second

// Load reads the file, and refuses what this program cannot watch.
func (p *Program) Load() (*config.Config, error) {
	text, err := os.ReadFile(p.File)
	if err != nil {
		return nil, &ops.UsageError{Err: fmt.Errorf("read --notify: %w", err)}
	}
	return p.parse(text)
}

func (p *Program) parse(text []byte) (*config.Config, error) {
	c, err := config.Parse(p.File, text, p.Getenv)
	if err == nil && p.Redis == nil && c.Needs(note.Hits, note.EnforcerStale, note.EnforcerGone) {
		err = errors.New("a route is about hits, enforcer-stale or enforcer-gone, which Redis tells: give --redis HOST:PORT")
	}
	if err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	return c, nil
}

// Run works until ctx ends.
func (p *Program) Run(ctx context.Context) error {
	var err error
	if p.metrics, err = newMetrics(p.Registry); err != nil {
		return err
	}
	p.told = map[string]*told{}
	text, err := os.ReadFile(p.File)
	if err != nil {
		return &ops.UsageError{Err: fmt.Errorf("read --notify: %w", err)}
	}
	c, err := p.parse(text)
	if err != nil {
		return err
	}
	p.text = text
	g, ctx := errgroup.WithContext(ctx)
	if err := p.take(ctx, g, c); err != nil {
		return err
	}
	g.Go(func() error { p.Kafka.WatchAccess(ctx, p.Log); return nil })
	if p.RedisAccess != nil && p.Redis != nil {
		g.Go(func() error { p.RedisAccess.WatchAccess(ctx, p.Log, p.Redis); return nil })
	}
	if p.Metrics != nil {
		g.Go(func() error { return ops.Serve(ctx, p.Metrics, p.handler()) })
	}
	g.Go(func() error { ops.LogReady(ctx, p.Log, p.ready); return nil })
	g.Go(func() error { p.watch(ctx); return nil })
	g.Go(func() error { return p.follow(ctx, g) })
	return g.Wait()
}

// follow takes in the file when it changes.
func (p *Program) follow(ctx context.Context, g *errgroup.Group) error {
	for retry.Sleep(ctx, reloadEvery) {
		text, err := os.ReadFile(p.File)
		if err == nil && bytes.Equal(text, p.text) {
			p.setBroken(nil)
			continue
		}
		var c *config.Config
		if err == nil {
			c, err = p.parse(text)
		}
		if err == nil {
			err = p.take(ctx, g, c)
		}
		if p.setBroken(err) {
			continue
		}
		if p.text = text; err == nil {
			p.metrics.reloads.WithLabelValues("ok").Inc()
			p.Log.Info("the file was reloaded", "file", p.File)
		}
	}
	return nil
}

// setBroken notes why the file is not taken, and tells the log when that is new. It reports whether it is not.
func (p *Program) setBroken(err error) (broken bool) {
	p.mu.Lock()
	was := p.broken
	p.broken = err
	p.mu.Unlock()
	if err != nil && (was == nil || was.Error() != err.Error()) {
		p.metrics.reloads.WithLabelValues("error").Inc()
		p.Log.Error("the file has changed and is invalid; keeping the old one", "file", p.File, "error", err)
	}
	return err != nil
}

// take puts a configuration into effect: receivers that are as they were go on.
func (p *Program) take(ctx context.Context, g *errgroup.Group, c *config.Config) error {
	next, to := map[string]*receiver{}, map[string]receive.Receiver{}
	for _, r := range c.Receivers {
		is := &receiver{is: r, routes: c.RoutesTo(r.Name), link: c.Console}
		if len(is.routes) == 0 {
			continue
		}
		if was := p.running[r.Name]; was != nil && was.same(is) {
			next[r.Name] = was
			continue
		}
		var err error
		if to[r.Name], err = p.receiverOf(r); err != nil {
			return err
		}
		next[r.Name] = is
	}
	for name, was := range p.running {
		if next[name] != was { // the group can have one member of this program at a time
			was.stop()
			<-was.ended
		}
	}
	for name, is := range next {
		if p.running[name] == is {
			continue
		}
		if p.told[name] == nil {
			p.told[name] = newTold()
		}
		is.worker = newWorker(c, is.is, to[name], p.told[name], p.metrics, p.Log)
		p.begin(ctx, g, is)
	}
	p.mu.Lock()
	p.running, p.current = next, c
	p.mu.Unlock()
	if c.Needs(note.Hits) {
		p.feed.Do(func() { g.Go(func() error { return p.followBlocks(ctx) }) })
	}
	return nil
}

func (p *Program) receiverOf(r *config.Receiver) (receive.Receiver, error) {
	if p.DryRun != nil {
		return &printer{receiver: r, out: p.DryRun}, nil
	}
	return receive.New(r, p.Getenv, time.Now, p.Log)
}

func (r *receiver) same(as *receiver) bool {
	return r.link == as.link && reflect.DeepEqual(r.is, as.is) && reflect.DeepEqual(r.routes, as.routes)
}

// Group is a receiver's consumer group.
func Group(prefix, receiver string) string { return prefix + "-notify." + receiver }

// begin starts a receiver's worker, and what reads the audit for it.
func (p *Program) begin(ctx context.Context, g *errgroup.Group, is *receiver) {
	reading, stop := context.WithCancel(ctx)
	is.stop, is.ended = stop, make(chan struct{})
	f := &follower{kafka: p.Kafka, topic: p.Prefix + ".audit", group: Group(p.Prefix, is.is.Name), w: is.worker, log: is.worker.log}
	if p.DryRun != nil {
		f.group, f.readOnly = Group(p.Prefix, "dry-run."+is.is.Name), true
	}
	working, done := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error {
		defer done() // the worker commits its last progress in the session
		defer stop()
		return f.run(reading)
	})
	g.Go(func() error {
		defer close(is.ended)
		return is.worker.run(working)
	})
}

// followBlocks keeps the blocks in step with Redis.
func (p *Program) followBlocks(ctx context.Context) error {
	feed, err := blocklist.NewFeed(blocklist.FeedConfig{Redis: p.Redis, Prefix: p.Prefix, Shards: blocklist.AnyShards, Logger: p.Log})
	if err != nil {
		return &ops.UsageError{Err: err}
	}
	return ops.IgnoreCanceled(ctx, feed.Run(ctx, &p.blocks))
}

// lookWithin bounds one look.
const lookWithin = 8 * time.Second

// watch looks for states, and shows them to all receivers.
func (p *Program) watch(ctx context.Context) {
	s := &source.States{Cluster: func(ctx context.Context) ([]byte, error) { return p.API.Get(ctx, "/v1/cluster") }, Now: time.Now}
	if p.Redis != nil {
		s.Beats = func(ctx context.Context) ([]presence.Beat, error) { return presence.List(ctx, p.Redis, p.Prefix) }
		s.Blocked = p.blocks.ByRule
	}
	defer p.API.Close()
	var failing logonce.Line
	for {
		p.mu.Lock()
		s.Watch = p.current.Watch
		p.mu.Unlock()
		lctx, cancel := context.WithTimeout(ctx, lookWithin)
		active, err := s.Look(lctx)
		cancel()
		if ctx.Err() != nil {
			return
		}
		result := "ok"
		if err != nil {
			result = "error"
			if left, due := failing.Due(); due {
				p.Log.Warn("not all states are known", "error", err, "left_out", left)
			}
		}
		p.metrics.polls.WithLabelValues(result).Inc()
		p.mu.Lock()
		running := make([]*receiver, 0, len(p.running))
		for _, r := range p.running {
			running = append(running, r)
		}
		p.mu.Unlock()
		for _, r := range running {
			r.worker.show(slices.Clone(active))
		}
		if !retry.Sleep(ctx, s.Watch.Poll) {
			return
		}
	}
}

// handler serves metrics, health, and GET /v1/status: for a listener that the public does not reach.
func (p *Program) handler() http.Handler {
	about := ops.NewReporter("notify")
	about.Address, about.Ready, about.But = p.Metrics.Addr().String(), p.ready, p.wrong
	about.Registry, about.Log, about.Settings = p.Registry, p.Log, p.Settings
	mux := http.NewServeMux()
	mux.Handle("GET /v1/status", about)
	mux.Handle("/", ops.MetricsHandler(p.Registry, p.ready, p.wrong))
	return mux
}

// ready returns why nobody is told.
func (p *Program) ready() error {
	if err := p.Kafka.Ready(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, r := range p.running {
		if !r.worker.joined.Load() {
			return fmt.Errorf("the receiver %s reads no audit yet: its group %s has no session", name, Group(p.Prefix, name))
		}
	}
	return nil
}

// wrong returns the trouble of a program that is ready.
func (p *Program) wrong() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken != nil {
		return fmt.Errorf("the file --notify is not taken: %w", p.broken)
	}
	return nil
}
