package workbench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/grouprules"
	"github.com/tallygate/tallygate/internal/run/rulecheck"
	"github.com/tallygate/tallygate/internal/tools/replay"
	"github.com/tallygate/tallygate/internal/tools/suggest"
	"github.com/tallygate/tallygate/rules"
)

// Suggested is the outcome of a search for numbers.
type Suggested struct {
	*suggest.Result
	Progress Progress       `json:"progress"`
	Unread   []string       `json:"unread,omitempty"` // fields of events that nothing reads, a sentence each
	Mistakes []*rules.Error `json:"-"`                // the text is no draft: there is nothing else
}

// Suggest finds numbers for the limits of a draft in past events. It takes the place of a replay, with the same
// bounds, and ends as one does.
func (b *Bench) Suggest(ctx context.Context, ask *Ask, wish suggest.Wish, progress func(Progress)) (*Suggested, error) {
	leave, err := b.begin(ask.Reader)
	if err != nil {
		return nil, err
	}
	defer leave()
	draft, mistakes, err := b.draft(ctx, ask.Text, ask.Published)
	if err != nil || mistakes != nil {
		return &Suggested{Mistakes: mistakes}, err
	}
	src, err := b.open(ctx, ask.From)
	if err != nil {
		return nil, err
	}
	defer func() { _ = src.Close() }() // it only read
	var unread []string
	replay.TellUnread(src, func(text string) { unread = append(unread, strings.TrimPrefix(text, "warning: ")) })
	study := suggest.New(draft)
	run := &running{Bench: b, source: src, began: time.Now(), tell: progress, Comparison: study.Comparison, bytes: study.Bytes}
	if err := run.read(ctx); err != nil {
		return nil, err
	}
	result, err := study.Result(wish)
	if err != nil {
		return nil, err
	}
	out := &Suggested{Result: result, Progress: run.progress(), Unread: unread}
	out.Seconds, out.Stopped = out.Progress.Seconds, run.stopped
	if b.cfg.Mask != nil {
		for i := range out.Limits {
			for j := range out.Limits[i].Top {
				out.Limits[i].Top[j].Key = b.cfg.Mask(out.Limits[i].Top[j].Key)
			}
		}
	}
	return out, nil
}

// draft compiles a text as Check does, within the same bounds.
func (b *Bench) draft(ctx context.Context, text string, published *api.Rules) (*rules.Draft, []*rules.Error, error) {
	if err := b.fits(text, "rules"); err != nil {
		return nil, nil, err
	}
	leave, err := turn(ctx, b.checks)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	ctx, cancel := context.WithTimeoutCause(ctx, b.cfg.CheckWithin,
		&Refusal{Detail: fmt.Sprintf("to read the draft takes more than %v: use `tallygate suggest`", b.cfg.CheckWithin)})
	defer cancel()
	draft, err := rules.CompileDraft(RulesFile, []byte(text), grouprules.Beside(published), func() error { return context.Cause(ctx) })
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, nil, context.Cause(ctx)
	case err != nil:
		return nil, rulecheck.Failed(RulesFile, err).Errors, nil
	}
	return draft, nil, nil
}
