package emit

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/segmentio/kafka-go/sasl"

	"github.com/tallygate/tallygate/event"
)

// Config names the brokers and the topic, and bounds the queue. Only Brokers is required.
type Config struct {
	// Brokers are the addresses (host:port) to find the cluster by. One that answers is
	// enough; none needs to be up when New is called.
	Brokers []string

	// Prefix begins every name of one installation; "" is "tallygate".
	Prefix string

	// Topic is the events' topic; "" is Prefix + ".events".
	Topic string

	// ClientID names this program in the broker's logs and quotas; "" is "tallygate-emit".
	ClientID string

	// TLS, when set, is used for every connection.
	TLS *tls.Config

	// SASL, when set, authenticates every connection: a mechanism of kafka-go's sasl/plain
	// or sasl/scram (SHA-256 and SHA-512). Those packages are the application's to import,
	// so that nothing links what it does not use.
	SASL sasl.Mechanism

	// Dial, when set, opens every connection in place of TLS and SASL, which are nil then: with TLS and
	// authentication of its own. So a program may go by certificates that were replaced since it started.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// MaxEvents and MaxBytes bound what waits for the broker; an event beyond either is
	// dropped. 0 is 100,000 events and 64 MiB. Bytes are those of the encoded events and of
	// the record around each; the memory in use can reach twice that.
	MaxEvents int
	MaxBytes  int

	// Linger is the time between two sendings of batches that are not full, and so how long an event
	// waits for others at most; 0 is 2 ms, less than 0 is none. An event that comes after a pause goes at
	// once, and a full batch (1 MiB or 1,000 records) never waits.
	Linger time.Duration

	// EventsPerRecord packs up to so many events of one partition into one record, as a JSON
	// array without a key: cheaper for the broker and for the aggregator, but other
	// consumers of the topic must know arrays. 0 is 1, the greatest is 1,000.
	EventsPerRecord int

	// TracesPerSecond bounds the events a second that keep their trace context (event.Event.Trace), by which
	// aggregators tell a collector of traces what became of them; those beyond are sent without. 0 is none. Such an
	// event has a record of its own.
	TracesPerSecond int

	// Traced, when set, is told once what became of each event that had a context: nil when Kafka has
	// acknowledged it, ErrNotTraced when the event is sent without, else why it was dropped. It is called from
	// Emit itself or from the background, maybe by several goroutines at once; it must not block and must not
	// call the Emitter.
	Traced func(trace event.Trace, err error)

	// Instance names what the program reads, for one that begins again where it stopped: 16 bytes,
	// drawn once and kept with the place it has got to. Then each event is sent by EmitAt, and
	// EventsPerRecord is 1. None draws a new one, which is right for all other programs.
	Instance []byte

	// RequestTimeout bounds one request, after which it is sent again; 0 is 10 s.
	RequestTimeout time.Duration

	// AsIs sends a Cost of 0 and a Time of 0 as they are. By default both mean absent (a cost
	// of 1, the broker's time), so that an event may be written as a literal of the fields
	// that matter. Set it to pass on events that were decoded.
	AsIs bool

	// OnDrop, when set, is told of every event that will not be sent. It is called from Emit
	// itself (reasons Invalid, QueueFull, Closed) or from the background (the others), maybe
	// by several goroutines at once; it must not block and must not call the Emitter.
	OnDrop func(Drop)

	// Logger is told when Kafka cannot be reached or refuses, when the reason changes and when it
	// works again; of dropped events the first time, and then at most once a minute with their number;
	// and once of what looks like a mistake in events (Stats.Suspects). It is never called from Emit.
	// nil is slog.Default().
	Logger *slog.Logger
}

const (
	maxBatchBytes   = 1 << 20 // with Kafka's default message.max.bytes a batch of this size fits
	maxBatchRecords = 1000
)

func (c Config) withDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, "tallygate")
	c.Topic = cmp.Or(c.Topic, c.Prefix+".events")
	c.ClientID = cmp.Or(c.ClientID, "tallygate-emit")
	c.MaxEvents = cmp.Or(c.MaxEvents, 100_000)
	c.MaxBytes = cmp.Or(c.MaxBytes, 64<<20)
	c.Linger = cmp.Or(c.Linger, 2*time.Millisecond)
	c.EventsPerRecord = cmp.Or(c.EventsPerRecord, 1)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 10*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.OnDrop == nil {
		c.OnDrop = func(Drop) {}
	}
	return c
}

// validate is called with the defaults in place.
func (c Config) validate() error {
	var errs []error
	if len(c.Brokers) == 0 {
		errs = append(errs, errors.New("no Brokers"))
	}
	for _, b := range c.Brokers {
		if _, _, err := net.SplitHostPort(b); err != nil {
			errs = append(errs, fmt.Errorf("%q in Brokers is not host:port: %w", b, err))
		}
	}
	if c.Dial != nil && (c.TLS != nil || c.SASL != nil) {
		errs = append(errs, errors.New("with Dial there is neither TLS nor SASL: it does both"))
	}
	if c.MaxEvents < 1 || c.MaxEvents > maxMaxEvents {
		errs = append(errs, fmt.Errorf("MaxEvents is %d, want 1 to %d", c.MaxEvents, maxMaxEvents))
	}
	if least := 2 * event.MaxBytes; c.MaxBytes < least || int64(c.MaxBytes) > maxMaxBytes {
		errs = append(errs, fmt.Errorf("MaxBytes is %d, want %d, so that every event fits, to %d", c.MaxBytes, least, int64(maxMaxBytes)))
	}
	if c.EventsPerRecord < 1 || c.EventsPerRecord > event.MaxArray {
		errs = append(errs, fmt.Errorf("EventsPerRecord is %d, want 1 to %d", c.EventsPerRecord, event.MaxArray))
	}
	if n := len(c.Instance); n != 0 && n != 16 {
		errs = append(errs, fmt.Errorf("the Instance has %d bytes, want 16, or none", n))
	} else if n != 0 && c.EventsPerRecord != 1 {
		errs = append(errs, errors.New("with an Instance EventsPerRecord has to be 1"))
	}
	if c.TracesPerSecond < 0 {
		errs = append(errs, fmt.Errorf("TracesPerSecond is %d, want 0 or more", c.TracesPerSecond))
	}
	if c.RequestTimeout < 0 {
		errs = append(errs, fmt.Errorf("RequestTimeout is %v, want more than 0", c.RequestTimeout))
	}
	return errors.Join(errs...)
}
