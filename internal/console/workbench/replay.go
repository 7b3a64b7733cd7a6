package workbench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/grouprules"
	"github.com/tallygate/tallygate/internal/tools/replay"
	"github.com/tallygate/tallygate/rules"
)

// Ask is a replay that a reader asks for.
type Ask struct {
	Reader    string     // one replay at a time each
	Text      string     // the rules to try
	From      time.Time  // of the events; up to now
	Published *api.Rules // the rules that run: they are compared with
}

// Progress is a replay's progress.
type Progress struct {
	Events  int     `json:"events"`  // counted
	Done    int64   `json:"done"`    // records read
	Of      int64   `json:"of"`      // about how many there are
	Seconds float64 `json:"seconds"` // since it began
}

// Share returns the part that is done, from 0 to 1.
func (p Progress) Share() float64 {
	if p.Of <= 0 {
		return 1
	}
	return min(float64(p.Done)/float64(p.Of), 1)
}

// Replayed is the outcome of a replay.
type Replayed struct {
	*replay.Result
	Stopped  string         `json:"stopped,omitempty"` // why it did not read to the end; "": it did
	Progress Progress       `json:"progress"`
	Version  int64          `json:"against_version"`
	Unread   []string       `json:"unread,omitempty"` // fields of events that nothing reads, a sentence each
	Mistakes []*rules.Error `json:"-"`                // the text is not valid: there is nothing else
}

const (
	openWithin    = 10 * time.Second // for Kafka to say which events there are
	progressEvery = 250 * time.Millisecond
	lookEvery     = 1024 // events: then limits are looked at
)

// errStopped ends a replay that has reached a limit.
var errStopped = errors.New("workbench: stopped")

// Replay counts past events by a text and by the rules that run. It tells progress now and then, in the
// caller's goroutine, and ends early, with what it has, at one of the Bench's limits. When ctx ends it returns
// its error.
func (b *Bench) Replay(ctx context.Context, ask *Ask, progress func(Progress)) (*Replayed, error) {
	leave, err := b.begin(ask.Reader)
	if err != nil {
		return nil, err
	}
	defer leave()
	checked, set, err := b.Check(ctx, ask.Text, ask.Published)
	if err != nil {
		return nil, err
	}
	if set == nil {
		return &Replayed{Mistakes: checked.Errors}, nil
	}
	old, err := grouprules.Compile(ask.Published)
	if err != nil {
		return nil, err
	}
	src, err := b.open(ctx, ask.From)
	if err != nil {
		return nil, err
	}
	defer func() { _ = src.Close() }() // it only read
	var unread []string
	replay.TellUnread(src, func(text string) { unread = append(unread, strings.TrimPrefix(text, "warning: ")) })
	run := &running{Bench: b, source: src, began: time.Now(), tell: progress, Comparison: replay.Compare(set, old)}
	run.bytes = run.Bytes
	if err := run.read(ctx); err != nil {
		return nil, err
	}
	out := &Replayed{Result: run.Result(), Stopped: run.stopped, Progress: run.progress(), Version: ask.Published.Version, Unread: unread}
	out.Seconds, out.Interrupted = out.Progress.Seconds, run.stopped != ""
	b.mask(out.Result)
	return out, nil
}

// begin takes a reader's place.
func (b *Bench) begin(reader string) (leave func(), err error) {
	if b.cfg.Events == nil {
		return nil, &Refusal{Detail: "this console has no Kafka to read past events from: start it with --kafka"}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.busy[reader] {
		return nil, &Refusal{Busy: true, Detail: "a replay of yours is under way: wait for it, or leave its page"}
	}
	select {
	case b.replays <- struct{}{}:
	default:
		return nil, &Refusal{Busy: true, Detail: fmt.Sprintf("%d replays of others are under way, which is as many as one console runs: try again in a minute", replaysAtOnce)}
	}
	b.busy[reader] = true
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.busy, reader)
		<-b.replays
	}, nil
}

func (b *Bench) open(ctx context.Context, from time.Time) (replay.Source, error) {
	opening, cancel := context.WithTimeoutCause(ctx, openWithin, fmt.Errorf("kafka does not answer within %v", openWithin))
	defer cancel()
	src, err := b.cfg.Events(opening, from)
	if err != nil && opening.Err() != nil {
		err = context.Cause(opening)
	}
	if err != nil {
		return nil, fmt.Errorf("read past events from Kafka: %w", err)
	}
	return src, nil
}

// running is one replay.
type running struct {
	*Bench
	*replay.Comparison
	source  replay.Source
	began   time.Time
	told    time.Time
	tell    func(Progress)
	stopped string
	bytes   func() int64 // about how much memory the keys take
}

func (r *running) read(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, r.cfg.ReplayWithin)
	defer cancel()
	r.OnEvent = r.look
	r.tell(r.progress())
	err := r.Read(bounded, r.source)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errStopped):
	case err != nil:
		return fmt.Errorf("read past events: %w", err)
	case bounded.Err() != nil:
		r.stopped = fmt.Sprintf("stopped after %v", r.cfg.ReplayWithin)
	}
	return nil
}

// look is called after each event.
func (r *running) look() error {
	if r.Events() >= r.cfg.ReplayEvents {
		r.stopped = fmt.Sprintf("stopped after %d events", r.cfg.ReplayEvents)
		return errStopped
	}
	if r.Events()%lookEvery != 0 {
		return nil
	}
	if r.bytes() > r.cfg.ReplayMemory {
		r.stopped = fmt.Sprintf("stopped, since the keys take more than %d MiB", r.cfg.ReplayMemory>>20)
		return errStopped
	}
	if now := time.Now(); now.Sub(r.told) >= progressEvery {
		r.told = now
		r.tell(r.progress())
	}
	return nil
}

func (r *running) progress() Progress {
	total, _ := r.source.Total()
	return Progress{Events: r.Events(), Done: r.source.Done(), Of: total, Seconds: time.Since(r.began).Seconds()}
}

// mask hides the keys of a result.
func (b *Bench) mask(r *replay.Result) {
	if b.cfg.Mask == nil {
		return
	}
	lists := [][]replay.KeyTally{r.Top}
	if r.Against != nil {
		lists = append(lists, r.Against.TopNewly, r.Against.TopGone)
	}
	for _, list := range lists {
		for i := range list {
			list[i].Key = b.cfg.Mask(list[i].Key)
		}
	}
	if r.Against == nil {
		return
	}
	for _, list := range [][]replay.KeyDiff{r.Against.TopHarder, r.Against.TopMilder} {
		for i := range list {
			list[i].Key = b.cfg.Mask(list[i].Key)
		}
	}
}
