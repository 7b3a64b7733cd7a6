package kafkalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Config names a Fetcher's brokers, and bounds its reads.
type Config struct {
	Brokers  []string // bootstrap addresses, host:port; required
	ClientID string   // "" is tallygate

	Dial        Dial          // opens connections, with TLS and SASL done; nil is net.Dialer's, in plain text
	DialTimeout time.Duration // 0 is 10 s
	ReadTimeout time.Duration // for a response, beyond what the broker may wait; 0 is 15 s

	Uncommitted bool // also records of transactions that were aborted, or have not ended

	// Far is the least round trip to a broker for its partitions to be shared out over several connections: see
	// lanes. 0: each broker has one.
	Far time.Duration

	MaxWait        time.Duration // how long a broker waits for MinBytes; 0 is 100 ms
	MinBytes       int32         // 0 is 1
	PartitionBytes int32         // asked for at once of a partition, and held ready of it; 0 is 8 MiB
	LargestBatch   int32         // a larger batch ends its reader; 0 is what fits into MaxResponse
	ResponseBytes  int32         // asked for at once; 0 is 50 MiB
	MaxResponse    int32         // a larger response is refused; 0 is 100 MiB
	MaxBatch       int           // what a batch may decompress to; 0 is DefaultMaxBatch

	// HoldBytes bounds what all readers hold as it came: what they were not asked for yet, and what was
	// taken and is not released. Each may hold its share, so that one that is not read from leaves the
	// others theirs. A batch that is larger comes alone. 0 is no bound but PartitionBytes.
	HoldBytes int64

	// OnHold is told how much more is held, or less. It must not block, nor call the Fetcher. Nil for
	// nobody.
	OnHold func(bytes int64)

	// OnError is told of each attempt that failed, also of those that are made again at once. It
	// must not block, nor call the Fetcher. Nil for nobody.
	OnError func(topic string, partition int32, err error)

	Logger *slog.Logger // nil is slog.Default()
}

// DefaultMaxBatch is eight times what the event topic takes of a compressed batch by default.
// Events in JSON compress to a fifth or a tenth, and producers close a batch at a mebibyte or so
// before compression; what is far beyond that was made to be.
const DefaultMaxBatch = 16 << 20

// Dial opens a connection.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

func (c Config) withDefaults() Config {
	c.ClientID = cmp.Or(c.ClientID, "tallygate")
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	c.ReadTimeout = cmp.Or(c.ReadTimeout, 15*time.Second)
	c.MaxWait = cmp.Or(c.MaxWait, 100*time.Millisecond)
	c.MinBytes = cmp.Or(c.MinBytes, 1)
	c.PartitionBytes = cmp.Or(c.PartitionBytes, 8<<20)
	c.ResponseBytes = cmp.Or(c.ResponseBytes, 50<<20)
	c.MaxResponse = cmp.Or(c.MaxResponse, 100<<20)
	c.LargestBatch = cmp.Or(c.LargestBatch, c.MaxResponse)
	c.MaxBatch = cmp.Or(c.MaxBatch, DefaultMaxBatch)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.OnHold == nil {
		c.OnHold = func(int64) {}
	}
	return c
}

// Kafka's isolation levels.
const (
	uncommitted = 0
	committed   = 1
)

func (c Config) isolation() int8 {
	if c.Uncommitted {
		return uncommitted
	}
	return committed
}

func (c Config) validate() error {
	var errs []error
	if len(c.Brokers) == 0 {
		errs = append(errs, errors.New("no Kafka brokers"))
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"dial timeout", int64(c.DialTimeout)}, {"read timeout", int64(c.ReadTimeout)}, {"wait", int64(c.MaxWait)}, {"round trip that is far", int64(c.Far)},
		{"minimum of bytes", int64(c.MinBytes)}, {"bytes of a partition", int64(c.PartitionBytes)},
		{"largest batch", int64(c.LargestBatch)}, {"bytes of a response", int64(c.ResponseBytes)},
		{"largest response", int64(c.MaxResponse)}, {"largest decompressed batch", int64(c.MaxBatch)}, {"bytes to hold", c.HoldBytes},
	} {
		if n.value < 0 {
			errs = append(errs, fmt.Errorf("a negative %s", n.name))
		}
	}
	if err := kgo.ValidateOpts(c.options()...); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return fmt.Errorf("kafkalog: %w", errors.Join(errs...))
	}
	return nil
}

// options are those of the connections. What goes wrong is tried again here, not in kgo.
func (c Config) options() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.RequestTimeoutOverhead(c.ReadTimeout),
		kgo.RequestRetries(1),
		kgo.BrokerMaxReadBytes(c.MaxResponse),
		kgo.FetchMaxBytes(min(c.ResponseBytes, c.MaxResponse)), // asked for by nobody, but checked
		kgo.DisableClientMetrics(),
	}
	if c.Dial != nil {
		return append(opts, kgo.Dialer(c.dial))
	}
	return append(opts, kgo.DialTimeout(c.DialTimeout))
}

// dial is Dial within DialTimeout.
func (c Config) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.DialTimeout)
	defer cancel()
	return c.Dial(ctx, network, address)
}
