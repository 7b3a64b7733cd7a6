package blocklist

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// Snapshotter is a table that a Keeper can copy; an enforce.Table is one.
type Snapshotter interface {
	Sink
	// List returns the verdicts in force, all of them when limit is negative.
	List(prefix, cursor string, limit int) (page []*verdict.Verdict, next string)
	// Ready reports whether it has had a complete snapshot of every shard.
	Ready() bool
	// Staleness returns the table's delay.
	Staleness() time.Duration
}

// KeeperConfig names a Keeper's table and file.
type KeeperConfig struct {
	// File is the path of the copy; required. Its folder must exist. The file is readable for its
	// owner only, since it names users.
	File string
	// Table is kept; required. It must have been made for one shard more than the blocklist has:
	// what was loaded lives in that until Redis has confirmed it.
	Table Snapshotter
	// Shards is the number of the blocklist's shards; 0 is 1.
	Shards int
	// Prefix is that of the blocklist; "" is tallygate. The copy of another one is not loaded.
	Prefix string
	// Every is the interval between copies; 0 is 1 min.
	Every time.Duration
	// Logger; nil is slog.Default().
	Logger *slog.Logger
}

// Keeper keeps a copy of a table on disk, so that a service that starts while Redis is away
// enforces what it knew last. Make it with NewKeeper, call Load, give the feed Sink, and Run it
// beside the feed.
type Keeper struct {
	cfg KeeperConfig

	mu       sync.Mutex
	awaiting map[int]bool // shards that have not been complete yet
}

// NewKeeper returns a Keeper that does nothing until Load or Run.
func NewKeeper(cfg KeeperConfig) (*Keeper, error) {
	cfg.Shards = cmp.Or(cfg.Shards, 1)
	cfg.Prefix = cmp.Or(cfg.Prefix, "tallygate")
	cfg.Every = cmp.Or(cfg.Every, time.Minute)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	var errs []error
	if cfg.File == "" || cfg.Table == nil {
		errs = append(errs, errors.New("blocklist: File and Table are required"))
	}
	if cfg.Shards < 1 || cfg.Every < 0 {
		errs = append(errs, fmt.Errorf("blocklist: Shards is %d and Every %v, want at least 1 and not negative", cfg.Shards, cfg.Every))
	}
	k := &Keeper{cfg: cfg, awaiting: map[int]bool{}}
	for shard := range cfg.Shards {
		k.awaiting[shard] = true
	}
	return k, errors.Join(errs...)
}

// Loaded is the result of Load.
type Loaded struct {
	Verdicts int
	Age      time.Duration // since the moment up to which it was in step; 0 when there was no file
}

// Load puts the copy into the table; call it once, before the feed runs. That there is no file is
// no error. After an error the table is as it was, and all else works.
func (k *Keeper) Load() (Loaded, error) {
	saved, err := readCopy(k.cfg.File, k.cfg.Prefix)
	if errors.Is(err, fs.ErrNotExist) {
		saved, err = tableCopy{}, nil
	}
	if err != nil {
		return Loaded{}, fmt.Errorf("load the copy of the blocklist: %w", err)
	}
	spare, table := k.cfg.Shards, k.cfg.Table
	table.Apply(spare, saved.verdicts)
	table.Heartbeat(spare, math.MaxInt64) // it is never what the table waits for
	if saved.applied == 0 {
		return Loaded{}, nil
	}
	for shard := range k.cfg.Shards {
		table.Heartbeat(shard, saved.applied) // so that its staleness is the copy's age
	}
	return Loaded{len(saved.verdicts), max(event.FromTime(time.Now())-saved.applied, 0).Duration()}, nil
}

// Sink returns what the feed is to keep in step: the table, which drops what was loaded and is in
// no shard any more as soon as all shards are complete.
func (k *Keeper) Sink() Sink { return keptSink{k.cfg.Table, k} }

type keptSink struct {
	Sink
	k *Keeper
}

// Shards returns the table's number for the feed, if it says so: all but the one that is the keeper's.
func (s keptSink) Shards() int {
	if t, ok := s.Sink.(interface{ Shards() int }); ok {
		return t.Shards() - 1
	}
	return s.k.cfg.Shards
}

func (s keptSink) Replace(shard int, all []verdict.Verdict) {
	s.Sink.Replace(shard, all)
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	if s.k.awaiting[shard] {
		if delete(s.k.awaiting, shard); len(s.k.awaiting) == 0 {
			s.Sink.Replace(s.k.cfg.Shards, nil)
		}
	}
}

// FollowedBy tells the table what to ask why it has no snapshot yet, if it wants to know.
func (s keptSink) FollowedBy(why func() error) {
	if table, ok := s.Sink.(interface{ FollowedBy(why func() error) }); ok {
		table.FollowedBy(why)
	}
}

// SnapshotsWanted is the table's.
func (s keptSink) SnapshotsWanted() uint64 {
	if table, ok := s.Sink.(interface{ SnapshotsWanted() uint64 }); ok {
		return table.SnapshotsWanted()
	}
	return 0
}

func (s keptSink) Remove(shard int, key []byte) {
	s.Sink.Remove(shard, key)
	s.Sink.Remove(s.k.cfg.Shards, key)
}

// Run writes the copy every now and then until ctx ends, and once more then; it returns nil. A
// table that is not complete is not written: the older copy is the better one.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(k.cfg.Every)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-tick.C:
		}
		if err := k.save(); err != nil {
			k.cfg.Logger.Error("writing the copy of the blocklist failed", "error", err)
		}
	}
	return nil
}

func (k *Keeper) save() error {
	if !k.cfg.Table.Ready() {
		return nil
	}
	applied := event.FromTime(time.Now().Add(-k.cfg.Table.Staleness()))
	all, _ := k.cfg.Table.List("", "", -1)
	return writeCopy(k.cfg.File, k.cfg.Prefix, applied, all)
}
