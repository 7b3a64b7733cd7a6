package rulewatch

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/console/rulestats"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// Config names the servers of a Watch.
type Config struct {
	Get Get // an aggregator, with the console's own credential; required
	// Beats are the enforcers that have announced themselves; nil is none. Their addresses come from Redis, so
	// that they are asked without a credential: whoever can write there must not get the console's.
	Beats func() []presence.Beat
	// Enforcers asks them; nil: over http.DefaultTransport.
	Enforcers *apiclient.Enforcers
	Every     time.Duration // 0 is two seconds
	Now       func() time.Time
}

// State is a picture of a moment. It is never changed once it is published.
type State struct {
	At      time.Time // of the last answer; zero: there was none
	Err     error     // of the last attempt; nil: it succeeded
	Cluster api.Cluster
	Rules   map[string]*rulestats.Rule
	Quality rulestats.Quality
	Span    time.Duration     // over which the rates are; 0: they are not known yet
	Began   time.Time         // of the polls: totals are since then
	Changes map[string]Change // of each rule the latest
	Listed  []int64           // the versions that are known, the newest first

	Enforcers int // that told how rules fare
	Silent    int // enforcers that did not: they are inside services, need a credential, or do not answer
}

// Rule returns a rule's numbers.
func (s *State) Rule(name string) rulestats.Rule {
	if r := s.Rules[name]; r != nil {
		return *r
	}
	r := rulestats.Rule{Name: name, Blocked: -1, ShadowNow: -1, Share: -1}
	if s.Enforcers > 0 { // they say of no verdict
		r.Blocked, r.ShadowNow, r.Share = 0, 0, 0
	}
	return r
}

// Keys counts the keys of all partitions in memory.
func (s *State) Keys() (n int) {
	for i := range s.Cluster.Members {
		if a := s.Cluster.Members[i].Aggregator; a != nil {
			for _, p := range a.Partitions {
				n += p.Keys
			}
		}
	}
	return n
}

// Watch asks. Make one with New.
type Watch struct {
	Book *Book

	cfg         Config
	aggregators *rulestats.Tracker
	enforcers   *rulestats.Tracker
	rounds      sync.Mutex // one at a time: a slower one would bring older answers back
	state       atomic.Pointer[State]
}

// New returns a Watch that has asked nothing yet.
func New(cfg Config) *Watch {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Every == 0 {
		cfg.Every = 2 * time.Second
	}
	if cfg.Enforcers == nil {
		cfg.Enforcers = apiclient.NewEnforcers(nil)
	}
	if cfg.Beats == nil {
		cfg.Beats = func() []presence.Beat { return nil }
	}
	w := &Watch{Book: NewBook(cfg.Get), cfg: cfg, aggregators: rulestats.New(0), enforcers: rulestats.New(0)}
	w.state.Store(&State{})
	return w
}

// State is the latest.
func (w *Watch) State() *State { return w.state.Load() }

// Run asks until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(w.cfg.Every)
	defer tick.Stop()
	for {
		w.Round(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Round asks once. It is Run's; what has changed the group, and tests, call it instead of waiting.
func (w *Watch) Round(ctx context.Context) {
	w.rounds.Lock()
	defer w.rounds.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	next := *w.state.Load()
	cluster, err := w.cluster(ctx)
	if err != nil {
		next.Err = err
		w.state.Store(&next)
		return
	}
	now := w.cfg.Now()
	w.aggregators.Add(now, members(cluster.Members))
	told, silent := w.askEnforcers(ctx)
	w.enforcers.Add(now, members(told))
	_ = w.Book.Refresh(ctx, runningOf(cluster.Members)) // the book keeps the error
	next = State{
		At: now, Cluster: cluster, Enforcers: len(told), Silent: silent, Span: w.aggregators.Span(), Began: w.aggregators.Began(),
		Rules:   rulestats.Rules(w.aggregators, w.enforcers, &rulestats.World{Aggregators: cluster.Members, Enforcers: told}),
		Quality: rulestats.QualityOf(w.aggregators), Changes: w.Book.LastChanges(), Listed: w.Book.Numbers(),
	}
	w.state.Store(&next)
}

func (w *Watch) cluster(ctx context.Context) (is api.Cluster, err error) {
	text, err := w.cfg.Get(ctx, "/v1/cluster?metrics="+url.QueryEscape(strings.Join(rulestats.Metrics, ",")))
	if err == nil {
		err = json.Unmarshal(text, &is)
	}
	if err != nil {
		err = fmt.Errorf("ask the aggregators how the rules fare: %w", err)
	}
	return is, err
}

func members(list []api.Status) (out []rulestats.Member) {
	for i := range list {
		s := &list[i]
		out = append(out, rulestats.Member{ID: s.Component + " " + s.Instance, Started: s.Started, Metrics: s.Metrics})
	}
	return out
}

// runningOf is the newest version that a member runs.
func runningOf(list []api.Status) (version int64) {
	for i := range list {
		if a := list[i].Aggregator; a != nil {
			version = max(version, a.Rules.Version)
		}
	}
	return version
}

const (
	maxEnforcers  = 50 // that are asked
	enforcersWait = time.Second
)

// askEnforcers asks decision servers how rules fare. Those inside services have no address.
func (w *Watch) askEnforcers(ctx context.Context) (told []api.Status, silent int) {
	ctx, cancel := context.WithTimeout(ctx, enforcersWait)
	defer cancel()
	var mu sync.Mutex
	var asked sync.WaitGroup
	beats := w.cfg.Beats()
	reached := slices.DeleteFunc(slices.Clone(beats), func(b presence.Beat) bool { return b.URL == "" || b.Gone() })
	for _, beat := range reached[:min(len(reached), maxEnforcers)] {
		asked.Go(func() {
			text, err := w.cfg.Enforcers.Get(ctx, beat.URL, "/v1/status?metrics=tallygate_rule_")
			var is api.Status
			if err == nil {
				err = json.Unmarshal(text, &is)
			}
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			is.Instance = beat.ID // what it calls itself need not be unique
			told = append(told, is)
		})
	}
	asked.Wait()
	slices.SortFunc(told, func(a, b api.Status) int { return strings.Compare(a.Instance, b.Instance) })
	return told, len(beats) - len(told)
}
