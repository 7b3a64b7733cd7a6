package auditlog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// FollowConfig configures a Follower.
type FollowConfig struct {
	Kafka   kafkalog.Config
	Topic   string        // the audit topic
	Span    time.Duration // how far back it begins; 0 is 24 h
	Entries int           // that it keeps, the latest; 0 is 50,000
	Bytes   int           // of these, about; 0 is 64 MiB
	Logger  *slog.Logger  // nil is slog.Default()
}

// Follower keeps the latest entries of the audit in memory. Many goroutines may ask it.
type Follower struct {
	cfg FollowConfig

	mu      sync.Mutex
	list    []*Record // in order, if sorted
	sorted  bool
	bytes   int
	from    time.Time // since when it has everything; zero before the first answer
	bad     int
	readers map[int32]*kafkalog.Reader
	trouble error // why it follows nothing
}

// Record is an entry, and its record.
type Record struct {
	*Entry
	Raw       []byte
	Key       string // the record's
	Partition int32
	Offset    int64
}

// NewFollower checks the configuration. Run follows.
func NewFollower(cfg FollowConfig) (*Follower, error) {
	if cfg.Topic == "" {
		return nil, errors.New("auditlog: a Follower needs a topic")
	}
	cfg.Span = cmp.Or(cfg.Span, 24*time.Hour)
	cfg.Entries = cmp.Or(cfg.Entries, 50_000)
	cfg.Bytes = cmp.Or(cfg.Bytes, 64<<20)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return &Follower{cfg: cfg, readers: map[int32]*kafkalog.Reader{}}, nil
}

const (
	followAgain  = time.Second
	followSeldom = 15 * time.Second

	// partitionsEvery is the interval between looks for more partitions of the topic.
	partitionsEvery = time.Minute
)

// Run follows until ctx ends. Without Kafka, or without the topic, it tries again.
func (f *Follower) Run(ctx context.Context) error {
	backoff := retry.Backoff{Min: followAgain, Max: followSeldom}
	places := map[int32]int64{}
	for {
		err := f.follow(ctx, places)
		if ctx.Err() != nil {
			return ops.IgnoreCanceled(ctx, err)
		}
		wait := followAgain
		if errors.Is(err, errMore) {
			backoff = retry.Backoff{Min: followAgain, Max: followSeldom}
		} else {
			f.cfg.Logger.Warn("the audit cannot be followed; it is tried again", "topic", f.cfg.Topic, "error", err)
			wait = backoff.Next()
		}
		f.failed(err)
		if !retry.Sleep(ctx, wait) {
			return nil
		}
	}
}

// errMore says that the topic has more partitions than are followed.
var errMore = errors.New("auditlog: the topic has more partitions")

func (f *Follower) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trouble = err; errors.Is(err, errMore) {
		f.trouble = nil
	}
	clear(f.readers)
}

// follow reads all partitions from their places on, which it moves.
func (f *Follower) follow(ctx context.Context, places map[int32]int64) error {
	fetcher, stop, err := kafkalog.Open(f.cfg.Kafka)
	if err != nil {
		return err
	}
	defer stop()
	partitions, err := f.begin(ctx, fetcher, places)
	if err != nil {
		return err
	}
	var mu sync.Mutex // of places
	g, ctx := errgroup.WithContext(ctx)
	for id := range partitions {
		from := places[id]
		g.Go(func() error {
			return f.partition(ctx, fetcher, id, from, func(place int64) {
				mu.Lock()
				places[id] = place
				mu.Unlock()
			})
		})
	}
	g.Go(func() error {
		for retry.Sleep(ctx, partitionsEvery) {
			if n, err := fetcher.Partitions(ctx, f.cfg.Topic); err == nil && n > partitions {
				return errMore
			}
		}
		return ctx.Err()
	})
	return g.Wait()
}

// askWithin bounds the questions with which it begins.
const askWithin = 20 * time.Second

// begin finds where to begin in partitions that were not followed before.
func (f *Follower) begin(ctx context.Context, fetcher *kafkalog.Fetcher, places map[int32]int64) (partitions int32, err error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	if partitions, err = fetcher.Partitions(ctx, f.cfg.Topic); err != nil {
		return 0, err
	}
	from := time.Now().Add(-f.cfg.Span)
	starts, err := fetcher.OffsetsAt(ctx, f.cfg.Topic, partitions, from)
	if err != nil {
		return 0, err
	}
	for id, start := range starts {
		if _, known := places[id]; !known {
			places[id] = start
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trouble = nil; f.from.IsZero() {
		f.from = from
	}
	return partitions, nil
}

// partition reads one partition. Where retention was faster, or the topic was created anew, it goes on at the
// log's start.
func (f *Follower) partition(ctx context.Context, fetcher *kafkalog.Fetcher, id int32, from int64, passed func(int64)) error {
	for {
		r := fetcher.Read(f.cfg.Topic, [16]byte{}, id, from)
		f.mu.Lock()
		f.readers[id] = r
		f.mu.Unlock()
		err := f.read(ctx, r, id, passed)
		r.Close()
		if !errors.Is(err, kafkalog.ErrOutOfRange) {
			return err
		}
		starts, err := fetcher.Starts(ctx, f.cfg.Topic, id+1)
		if err != nil {
			return err
		}
		from = starts[id]
		passed(from)
	}
}

func (f *Follower) read(ctx context.Context, r *kafkalog.Reader, id int32, passed func(int64)) error {
	for {
		chunk, err := r.Next(ctx)
		if err != nil {
			return err
		}
		for {
			batch, ok, err := chunk.Next()
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			f.take(id, &batch)
		}
		passed(chunk.Place())
	}
}

// take keeps the entries of a batch. One that cannot be read is counted, and left out.
func (f *Follower) take(id int32, batch *kafkalog.Batch) {
	var rec kafkalog.Record
	for {
		ok, err := batch.Next(&rec)
		if err != nil || !ok {
			if err != nil {
				f.unreadable()
			}
			return
		}
		e, err := parseRecord(&rec)
		if err != nil {
			f.unreadable()
			continue
		}
		f.keep(&Record{e, bytes.Clone(rec.Value), string(rec.Key), id, rec.Offset})
	}
}

func (f *Follower) unreadable() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bad++
}
