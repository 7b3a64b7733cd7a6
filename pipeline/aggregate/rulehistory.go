package aggregate

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

func (r *ruleRecord) without(version int64) api.RuleVersion {
	v := api.RuleVersion{
		Version: version, Hash: r.Hash, Name: r.Name, File: r.File, Modified: r.Modified, By: r.By, OnBehalfOf: r.OnBehalfOf,
		At: r.At, Bytes: len(r.Source), From: r.From, Reason: r.Reason,
	}
	for _, f := range r.Files {
		v.Bytes += len(f)
	}
	return v
}

const (
	// historyWithin bounds reading the rules topic for a question.
	historyWithin = 10 * time.Second
	// historyStep is the number of records that are read at once.
	historyStep = 128
)

// Versions returns the newest versions below one, at most so many, the newest first; before 0 is the end. more
// reports whether there are older ones.
func (b *rulebook) Versions(ctx context.Context, before int64, limit int) (all []api.RuleVersion, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, historyWithin)
	defer cancel()
	done, err := b.wait(ctx)
	if err != nil {
		return nil, false, err
	}
	defer done()
	oldest, to, err := b.kept.bounds(ctx)
	if err != nil {
		return nil, false, err
	}
	if before > 0 {
		to = min(to, before-1)
	}
	for to > oldest && len(all) <= limit {
		from := max(oldest, to-historyStep)
		var some []api.RuleVersion
		err := b.each(ctx, from, to, func(version int64, r *ruleRecord) { some = append(some, r.without(version)) })
		if err != nil {
			return nil, false, err
		}
		slices.Reverse(some)
		all, to = append(all, some...), from
	}
	if more = len(all) > limit; more {
		all = all[:limit]
	}
	return all, more, nil
}

// wait returns when no other request reads the topic.
func (b *rulebook) wait(ctx context.Context) (done func(), err error) {
	select {
	case b.turn <- struct{}{}:
		return func() { <-b.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// each calls f with the versions whose offsets are in [from, to), in order. What is no version of the rules that
// this program can read is left out.
func (b *rulebook) each(ctx context.Context, from, to int64, f func(version int64, r *ruleRecord)) error {
	err := b.kept.scan(ctx, from, to, func(rec *kafkalog.Record) error {
		if string(rec.Key) != ruleRecordKey {
			return nil
		}
		m := ruleRecordAt{rec.Offset, rec.Value}
		if r, err := m.parse(); err == nil {
			f(rec.Offset+1, &r)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", b.topic, err)
	}
	return nil
}

// Version returns a version as it was published.
func (b *rulebook) Version(ctx context.Context, number int64) (api.Rules, error) {
	ctx, cancel := context.WithTimeout(ctx, historyWithin)
	defer cancel()
	done, err := b.wait(ctx)
	if err != nil {
		return api.Rules{}, fmt.Errorf("others read the rules topic: %w", err)
	}
	defer done()
	r, err := b.at(ctx, number)
	return api.Rules{Version: number, RuleRecord: r.RuleRecord}, err
}

func (b *rulebook) at(ctx context.Context, version int64) (r ruleRecord, err error) {
	oldest, end, err := b.kept.bounds(ctx)
	if err != nil {
		return r, err
	}
	m, err := rulesAt(ctx, b.kept.scan, oldest, end, version)
	switch {
	case err != nil:
		return r, fmt.Errorf("read %s: %w", b.topic, err)
	case m == nil:
		return r, fmt.Errorf("%w: %d of %s, which has those from %d to %d; a compacted topic keeps only the last one", ask.ErrNoVersion, version, b.topic, oldest+1, end)
	}
	return m.parse()
}

// maxWithdrawn bounds how many texts a roll back withdraws: those of the newest versions.
const maxWithdrawn = 1000

// Rollback publishes the text of an older version as the newest one. It is modified now: no rule file that an
// instance has replaces it, but one that is changed later. Files with the text of a version that it replaces do
// not, however often they are touched, until another version is published.
func (b *rulebook) Rollback(ctx context.Context, to api.Rollback) (api.Reloaded, error) {
	if !b.Shared() {
		return api.Reloaded{}, ErrRulesFixed
	}
	if !b.agg.online.Load() {
		return api.Reloaded{}, ErrNotConnected
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.read(ctx); err != nil {
		return api.Reloaded{}, err
	}
	old, err := b.at(ctx, to.Version)
	if err != nil {
		return api.Reloaded{}, err
	}
	set, err := b.agg.cfg.compile(old.ruleFile())
	if err != nil {
		return api.Reloaded{}, fmt.Errorf("%w: version %d does not compile here: %w", ErrRules, to.Version, err)
	}
	hash := hex.EncodeToString(set.Hash[:])
	if b.newest != nil && b.newest.Hash == hash {
		return api.Reloaded{}, fmt.Errorf("%w: version %d has those of version %d", ask.ErrRunning, b.next, to.Version)
	}
	next := ruleRecord{api.RuleRecord{
		Format: ruleRecordFormat, Hash: hash, Name: set.Name, File: old.File, Modified: time.Now().UTC(),
		By: to.By, OnBehalfOf: to.OnBehalfOf, At: time.Now().UTC(), Source: old.Source, Files: old.Files,
		From: to.Version, Reason: to.Reason,
	}}
	if next.By == "" {
		next.By = b.agg.name()
	}
	if b.newest != nil && b.newest.Modified.After(next.Modified) { // the clock of the machine with that file is ahead
		next.Modified = b.newest.Modified
	}
	if next.Withdrawn, err = b.replacedBy(ctx, &next, b.next); err != nil {
		return api.Reloaded{}, err
	}
	return b.publishAndRead(ctx, next)
}

// replacedBy returns the texts of the versions that a roll back replaces: those after the one that it takes up again.
func (b *rulebook) replacedBy(ctx context.Context, next *ruleRecord, end int64) (texts []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, historyWithin)
	defer cancel()
	own := textOf([]byte(next.Source), next.Files)
	err = b.each(ctx, max(next.From, end-maxWithdrawn), end, func(_ int64, r *ruleRecord) {
		for _, text := range append(r.Withdrawn, textOf([]byte(r.Source), r.Files)) {
			if text != own {
				texts = append(texts, text)
			}
		}
	})
	slices.Sort(texts)
	texts = slices.Compact(texts)
	return texts[:min(len(texts), maxWithdrawn)], err
}
