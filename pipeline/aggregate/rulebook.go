package aggregate

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/rules"
)

// ErrOlderRules says that a rule file is older than the set that the group runs.
var ErrOlderRules = errors.New("aggregate: the rule file is older than the rules that the group runs")

// ErrRulesFixed says that there is no rule file to reload. ErrNotConnected says that Kafka is not
// connected yet: try again. ErrRules is wrapped by errors that say what is wrong with a rule file: trying
// the same file again changes nothing.
var (
	ErrRulesFixed   = errors.New("aggregate: the rules are fixed: there is no Config.RuleFile")
	ErrNotConnected = ask.ErrNotConnected
	ErrRules        = ask.ErrRules
)

// ErrRulesTooLarge is wrapped by the error for a rule file that its topic does not take, with the files
// that it names.
var ErrRulesTooLarge = errors.New("aggregate: the rule file is too large")

// rulebook keeps this instance at the newest version of the group's rules. All versions go through
// one partition of a topic that keeps them, and a version's number is its offset there plus one. So all
// instances agree which version is newer, and of two published at once the later one applies.
type rulebook struct {
	agg     *instance
	log     *slog.Logger
	topic   string
	kept    rulesLog
	current atomic.Pointer[owner.Rules]
	running atomic.Pointer[api.Rules] // the source of current; nil before one was read from the topic

	turn chan struct{} // holds one while a request reads the topic

	mu     sync.Mutex // held while reading the topic or publishing
	next   int64      // the first offset of the topic not read yet; -1 at first
	newest *ruleRecord
	failed int64 // the newest version that this instance could not compile; not tried again
	why    error // failed did not compile
}

const (
	// rulesEvery is the interval between looks for a newer version.
	rulesEvery = time.Second
	// rulesPatience is the time for which that may fail before it is logged, and then each minute.
	rulesPatience = 5 * time.Second
)

func newRulebook(a *instance) *rulebook {
	b := &rulebook{agg: a, log: a.log, topic: a.names.Rules, turn: make(chan struct{}, 1), next: -1}
	b.kept = rulesTopic{b}
	b.current.Store(b.version(0, a.cfg.Rules))
	return b
}

func (b *rulebook) version(number int64, set *rules.Set) *owner.Rules {
	return &owner.Rules{Number: number, Published: protocol.RulesVersion(b.id(), number), Set: set, Matches: b.agg.metrics.partitions.MatchesOf(set)}
}

// id is the topic's.
func (b *rulebook) id() [16]byte {
	if found := b.agg.found.Load(); found != nil {
		return found.IDs[b.topic]
	}
	return [16]byte{}
}

// Shared reports whether the rules go through the topic.
func (b *rulebook) Shared() bool { return len(b.agg.cfg.RuleFile.Source) > 0 }

// Current returns the version that this instance runs.
func (b *rulebook) Current() *owner.Rules { return b.current.Load() }

// Running returns the source of Current; nil before one was read from the topic.
func (b *rulebook) Running() *api.Rules { return b.running.Load() }

// run follows the topic until ctx ends.
func (b *rulebook) run(ctx context.Context) {
	if !b.Shared() {
		return
	}
	tick := time.NewTicker(rulesEvery)
	defer tick.Stop()
	var since, said time.Time // start of an outage; last log line about it
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		switch err := b.Refresh(ctx); {
		case ctx.Err() != nil:
		case err == nil && !said.IsZero():
			b.log.Info("reading the rules topic again", "took_seconds", time.Since(since).Seconds())
			since, said = time.Time{}, time.Time{}
		case err == nil:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= rulesPatience && time.Since(said) >= time.Minute:
			said = time.Now()
			b.log.Warn("cannot read the rules topic; newer rules are not seen until it works again", "topic", b.agg.names.Rules, "error", err)
		}
	}
}

// start reads the group's rules, and publishes this instance's own file if it is newer.
func (b *rulebook) start(ctx context.Context) error {
	if !b.Shared() {
		return nil
	}
	_, err := b.reload(ctx, b.agg.cfg.RuleFile)
	if errors.Is(err, ErrOlderRules) {
		b.log.Warn("this instance's rule file is ignored", "error", err)
		b.mu.Lock()
		defer b.mu.Unlock()
		if err := b.settled(); err != nil {
			return b.agg.fail(err)
		}
		return nil
	}
	return err
}

// reload publishes a file as the next version, unless the group runs it already or runs a newer
// one.
func (b *rulebook) reload(ctx context.Context, file RuleFile) (api.Reloaded, error) {
	set, err := b.agg.cfg.compile(file)
	if err != nil {
		return api.Reloaded{}, fmt.Errorf("%w: %w", ErrRules, err) // the old set stays
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.read(ctx); err != nil {
		return api.Reloaded{}, err
	}
	hash := hex.EncodeToString(set.Hash[:])
	if n := b.newest; n != nil && n.Hash == hash {
		return b.now(false), b.settled()
	} else if n != nil && n.withdraws(file.Source, set.Files) {
		return b.now(false), n.withdrawn(b.next, file.Name)
	} else if n != nil && !file.Modified.After(n.Modified) {
		return b.now(false), fmt.Errorf("%w: %s is of %s, version %d was published by %s from a file of %s; change or touch the file to publish it",
			ErrOlderRules, file.Name, file.Modified.UTC().Format(time.RFC3339), b.next, n.By, n.Modified.UTC().Format(time.RFC3339))
	}
	who := ask.ActorOf(ctx)
	return b.publishAndRead(ctx, ruleRecord{api.RuleRecord{
		Format: ruleRecordFormat, Hash: hash, Name: set.Name, File: file.Name, Modified: file.Modified.UTC(),
		By: cmp.Or(who.Name, b.agg.name()), At: time.Now().UTC(), Source: string(file.Source), Files: set.Files,
	}})
}

// publishAndRead makes a record the next version. The caller holds mu.
func (b *rulebook) publishAndRead(ctx context.Context, r ruleRecord) (api.Reloaded, error) {
	err := b.publish(ctx, r)
	if err == nil {
		err = b.read(ctx)
	}
	if err != nil {
		return api.Reloaded{}, err
	}
	return b.now(true), b.settled()
}

func (b *rulebook) now(changed bool) api.Reloaded {
	return api.Reloaded{Version: b.current.Load().Number, Changed: changed}
}

// settled returns an error while the newest version is one that this instance could not compile.
func (b *rulebook) settled() error {
	switch v := b.current.Load().Number; {
	case b.failed <= v:
		return nil
	case v == 0:
		return b.why
	default:
		return fmt.Errorf("version %d of the rules stays: %w", v, b.why)
	}
}

// FailedAt returns the newest version that does not compile here, and why; 0 if there is none.
func (b *rulebook) FailedAt() (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed, b.why
}

func (b *rulebook) publish(ctx context.Context, r ruleRecord) error {
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	at, err := b.kept.append(value)
	if errors.Is(err, sarama.ErrMessageSizeTooLarge) {
		err = fmt.Errorf("%w: with their files they have %d bytes before compression: raise max.message.bytes of %s, or shorten the files: %w", ErrRulesTooLarge, len(value), b.topic, err)
	}
	if err != nil {
		return fmt.Errorf("publish the rules: %w", err)
	}
	b.agg.audits.owe(ruleRecordKey, r.audit(at+1))
	return ctx.Err()
}

// Refresh makes sure that this instance runs the newest version.
func (b *rulebook) Refresh(ctx context.Context) error {
	if !b.Shared() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.read(ctx)
}

// read reads the topic up to its end, and takes over the last version. The caller holds mu.
func (b *rulebook) read(ctx context.Context) error {
	end, err := b.kept.newest()
	if err != nil {
		return fmt.Errorf("find the end of %s: %w", b.topic, err)
	}
	if end < b.next {
		return b.agg.fail(fmt.Errorf("%s ends at %d and was read up to %d: it was created anew while this instance ran; start it again", b.topic, end, b.next))
	}
	if end == b.next {
		return nil
	}
	oldest, err := b.kept.oldest()
	if err != nil {
		return fmt.Errorf("find the start of %s: %w", b.topic, err)
	}
	from := max(b.next, oldest)
	if from >= end {
		b.next = end
		return nil
	}
	m, err := lastRules(ctx, b.kept.scan, from, end)
	if errors.Is(err, kafkalog.ErrTopicChanged) {
		return b.agg.fail(fmt.Errorf("read %s from %d: it was created anew while this instance ran; start it again: %w", b.topic, from, err))
	}
	if err != nil {
		return fmt.Errorf("read %s from %d: %w", b.topic, from, err)
	}
	b.next = end
	if m != nil {
		b.take(m)
	}
	return nil
}

// warnOf logs what the rules say and probably do not mean, as tallygate check does.
func (b *rulebook) warnOf(set *rules.Set, number int64, r *ruleRecord) {
	const shown = 5
	warnings := set.WarningsAt(event.FromTime(time.Now()))
	if len(warnings) == 0 {
		return
	}
	first := make(rules.Errors, 0, shown)
	for i := range warnings[:min(len(warnings), shown)] {
		first = append(first, (*rules.Error)(&warnings[i]))
	}
	b.log.Warn("the group's rules are valid, and probably not what was meant; see tallygate check", "version", number, "file", r.File, "warnings", len(warnings), "error", first)
}

// compareRetention warns if verdicts of a new set may be deleted before they end.
func (b *rulebook) compareRetention(set *rules.Set) {
	found, needed := b.agg.found.Load(), set.LongestVerdict().Duration()
	if found == nil || found.VerdictRetention == 0 || needed <= found.VerdictRetention {
		return
	}
	topic := b.agg.names.Verdicts
	b.log.Warn("verdicts are deleted before they end by these rules, and blocks would be lost when the blocklist is rebuilt", "topic", topic,
		"retention_seconds", found.VerdictRetention.Seconds(), "needed_seconds", needed.Seconds(),
		"advice", topics.AlterCommand(b.agg.cfg.Brokers, topic, "retention.ms", strconv.FormatInt(needed.Milliseconds(), 10)))
}

// take makes a record's rules the current ones. If this program does not understand them, it keeps
// the old ones and logs why.
func (b *rulebook) take(m *ruleRecordAt) {
	number := m.offset + 1
	r, err := m.parse()
	var set *rules.Set
	if err == nil {
		b.newest = &r
		set, err = b.agg.cfg.compile(r.ruleFile())
	}
	if err != nil {
		b.failed, b.why = number, r.refused(number, err)
		b.agg.metrics.rulesFailed.Inc()
		b.log.Error("the group's rules do not compile on this instance; keeping the old ones", "version", number, "error", b.why)
		return
	}
	if len(set.Outdated) > 0 {
		b.log.Warn("the group's rules use syntax that rule files no longer allow; it keeps its meaning; fix the file", "version", number, "file", r.File, "by", r.By, "error", set.Outdated)
	}
	b.warnOf(set, number, &r)
	old := b.current.Load()
	v := b.version(number, set)
	b.current.Store(v)
	b.running.Store(&api.Rules{Version: number, RuleRecord: r.RuleRecord})
	b.agg.metrics.rulesVersion.Set(float64(number))
	if b.agg.rulesTold != nil {
		b.agg.rulesTold(v.Published, m.value, set) // before owners switch: what they say then is not missed
	}
	if old.Set.Hash == set.Hash {
		return
	}
	b.compareRetention(set)
	b.log.Info("the group's rules have changed", "version", number, "rule_set", r.Name, "file", r.File, "by", r.By, "rules", len(set.All()))
	for _, p := range b.agg.owned() {
		p.Use(v)
	}
}
