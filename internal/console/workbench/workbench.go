// Package workbench runs check, test and replay on what a reader of the console has typed. The text is a
// stranger's: it opens no file, and what it may cost in memory and time is bounded. Nothing is kept.
package workbench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/grouprules"
	"github.com/tallygate/tallygate/internal/run/rulecheck"
	"github.com/tallygate/tallygate/internal/tools/replay"
	"github.com/tallygate/tallygate/internal/tools/ruletest"
	"github.com/tallygate/tallygate/rules"
)

// RulesFile and TestsFile are what the texts are called in errors.
const (
	RulesFile = "rules.yaml"
	TestsFile = "rules_test.yaml"
)

// Config bounds a Bench. Zero fields have the defaults that they name.
type Config struct {
	// Events opens the events from a time on. Nil: there is no Kafka to ask, and Replay fails.
	Events func(ctx context.Context, from time.Time) (replay.Source, error)
	// Mask hides a key in results; nil shows it.
	Mask func(key string) string

	MaxText      int           // bytes of a text; 0 is 2 MiB
	CheckWithin  time.Duration // 0 is 10 s
	TestEvents   int           // of all tests together; 0 is 200,000
	TestWithin   time.Duration // 0 is 20 s
	ReplayEvents int           // 0 is 2 million
	ReplayMemory int64         // about so many bytes for keys; 0 is 512 MiB
	ReplayWithin time.Duration // 0 is 60 s
}

func (c Config) withDefaults() Config {
	c.MaxText = cmp.Or(c.MaxText, 2<<20)
	c.CheckWithin = cmp.Or(c.CheckWithin, 10*time.Second)
	c.TestEvents = cmp.Or(c.TestEvents, 200_000)
	c.TestWithin = cmp.Or(c.TestWithin, 20*time.Second)
	c.ReplayEvents = cmp.Or(c.ReplayEvents, 2_000_000)
	c.ReplayMemory = cmp.Or(c.ReplayMemory, 512<<20)
	c.ReplayWithin = cmp.Or(c.ReplayWithin, time.Minute)
	return c
}

// Bench is a Config in use. Many goroutines may use it.
type Bench struct {
	cfg     Config
	checks  chan struct{} // holds one for each check or test under way
	replays chan struct{}

	mu   sync.Mutex
	busy map[string]bool // readers with a replay under way
}

// At once, for all readers of a console. A check takes a moment, and waits for its turn.
const (
	checksAtOnce  = 2
	replaysAtOnce = 2
)

// New returns a Bench.
func New(cfg Config) *Bench {
	return &Bench{cfg: cfg.withDefaults(), checks: make(chan struct{}, checksAtOnce), replays: make(chan struct{}, replaysAtOnce), busy: map[string]bool{}}
}

// Refusal is why something is not done, for people.
type Refusal struct {
	Busy   bool // it is worth another attempt soon
	Detail string
}

func (r *Refusal) Error() string { return r.Detail }

func (b *Bench) fits(text, what string) error {
	if len(text) > b.cfg.MaxText {
		return &Refusal{Detail: fmt.Sprintf("the %s have %d bytes, and may have %d", what, len(text), b.cfg.MaxText)}
	}
	return nil
}

// turn waits for one of the places in a channel.
func turn(ctx context.Context, places chan struct{}) (leave func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Check explains the mistakes of a text. The files that it names are those of the published version, and no others.
// The set is nil unless the text is valid.
func (b *Bench) Check(ctx context.Context, text string, published *api.Rules) (rulecheck.Result, *rules.Set, error) {
	if err := b.fits(text, "rules"); err != nil {
		return rulecheck.Result{}, nil, err
	}
	leave, err := turn(ctx, b.checks)
	if err != nil {
		return rulecheck.Result{}, nil, err
	}
	defer leave()
	ctx, cancel := context.WithTimeoutCause(ctx, b.cfg.CheckWithin,
		&Refusal{Detail: fmt.Sprintf("the check takes more than %v: check the file with `tallygate check`", b.cfg.CheckWithin)})
	defer cancel()
	result, set := rulecheck.Text(ctx, RulesFile, []byte(text), grouprules.Beside(published))
	if set == nil && ctx.Err() != nil {
		return rulecheck.Result{}, nil, context.Cause(ctx)
	}
	return result, set, nil
}

// Tests is the outcome of a file of tests.
type Tests struct {
	Mistakes []*rules.Error // the rules or the tests are invalid: no test ran
	Results  []ruletest.Result
	Missed   []ruletest.Unreached // if all tests ran
	Took     time.Duration
}

// Failed counts the tests that failed.
func (t *Tests) Failed() (n int) {
	for _, r := range t.Results {
		if len(r.Failures) > 0 {
			n++
		}
	}
	return n
}

// Test runs tests against rules, both as texts. Whatever name rule_files has stands for these rules.
func (b *Bench) Test(ctx context.Context, text, tests string, published *api.Rules) (*Tests, error) {
	if err := errors.Join(b.fits(text, "rules"), b.fits(tests, "tests")); err != nil {
		return nil, err
	}
	leave, err := turn(ctx, b.checks)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := context.WithTimeoutCause(ctx, b.cfg.TestWithin,
		&Refusal{Detail: fmt.Sprintf("the tests take more than %v: run them with `tallygate test`", b.cfg.TestWithin)})
	defer cancel()
	f, err := ruletest.Parse(TestsFile, []byte(tests), b.cfg.TestEvents)
	if f == nil {
		return &Tests{Mistakes: mistakes(TestsFile, err)}, nil
	}
	from := ruletest.RuleFiles{
		Read: func(path string) ([]byte, error) {
			if len(f.RuleFiles) > 1 {
				return nil, errors.New("only the rules on this page are tested here: leave one name")
			}
			return []byte(text), nil
		},
		Beside: func(string) func(string) ([]byte, error) { return grouprules.Beside(published) },
	}
	if len(f.RuleFiles) == 1 {
		f.RuleFiles[0] = RulesFile // in errors
	}
	ran := f.Run(ctx, from, func(string) bool { return true })
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return &Tests{Mistakes: mistakes(TestsFile, ran.Err), Results: ran.Results, Missed: ran.Missed, Took: ran.Took}, nil
}

// mistakes takes an error apart.
func mistakes(file string, err error) (list []*rules.Error) {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case nil:
		return nil
	case *rules.Error:
		return []*rules.Error{e}
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			list = append(list, mistakes(file, one)...)
		}
		return list
	}
	return []*rules.Error{{File: file, Line: 1, Column: 1, Message: err.Error()}}
}
