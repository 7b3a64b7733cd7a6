package aggregate

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/budget"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// bundleSize bounds the records that goka receives as one message. At this size goka costs next to nothing. A larger
// record batch stays whole.
const bundleSize = 256

// bundle is records of one claim, with their partition.
type bundle struct {
	owner.Bundle
	of *owner.Partition

	from    *bundler
	own     int64 // memory of its batches, beside that of chunks
	fetched int   // memory of the chunks that end in it
	freed   sync.Once
}

// release gives the bundle's memory back: it is counted, or will be read again.
func (b *bundle) release() {
	b.freed.Do(func() {
		b.Batches = nil
		b.from.memory.Release(b.own)
		b.from.reader.Release(b.fetched)
	})
}

// inFlight holds the bundles that were handed to goka and have not yet come out of its codec.
type inFlight struct {
	byID sync.Map
	last atomic.Uint64
}

func (f *inFlight) put(b *bundle) (id uint64) {
	id = f.last.Add(1)
	f.byID.Store(id, b)
	return id
}

// take returns the bundle with an id, which is in flight no more.
func (f *inFlight) take(id uint64) (*bundle, bool) {
	b, ok := f.byID.LoadAndDelete(id)
	if !ok {
		return nil, false
	}
	return b.(*bundle), true
}

// clear drops what goka has left.
func (f *inFlight) clear() {
	f.byID.Range(func(id, _ any) bool {
		if b, ok := f.take(id.(uint64)); ok {
			b.release()
		}
		return true
	})
}

type bundler struct {
	part   *owner.Partition
	reader *kafkalog.Reader
	memory *budget.Claim
	claim  sarama.ConsumerGroupClaim
	source shard.Source
	out    chan *sarama.ConsumerMessage
	flight *inFlight
	sent   int64 // the offset after the last bundle
	chunk  kafkalog.Chunk
}

// bundlesInShare is the number of bundles for which a claim's share of the memory has room: one is counted while the
// next ones are made.
const bundlesInShare = 4

// run fills bundles with the batches that are there, and waits only for the first of a bundle. It
// returns ctx's error, or the error after which nothing more can be read.
func (b *bundler) run(ctx context.Context) error {
	for {
		next, err := b.fill(ctx)
		if err != nil {
			return err
		}
		if err := b.send(ctx, next); err != nil {
			next.release()
			return err
		}
		b.sent = next.Place
	}
}

// fill makes the next bundle. After an error there is none.
func (b *bundler) fill(ctx context.Context) (next *bundle, err error) {
	next = &bundle{of: b.part, from: b, Bundle: owner.Bundle{Source: b.source}}
	most := b.memory.Share() / bundlesInShare
	for records := 0; records < bundleSize && (next.own < most || records == 0); {
		batch, ok, err := b.nextBatch(ctx, next)
		if errors.Is(err, errNoMemory) {
			break
		}
		next.Place = max(next.Place, b.chunk.Place())
		if err == nil && b.chunk.Rest() == 0 { // an error stays with the chunk
			next.fetched += b.chunk.Held()
			b.chunk = kafkalog.Chunk{}
		}
		if err == nil && !ok {
			// Batches with nothing but markers move the place all the same.
			if b.chunk, ok, err = b.more(ctx, next.Place <= b.sent); ok {
				continue
			}
		}
		if err != nil && next.Place <= b.sent {
			next.release()
			return nil, err
		}
		if !ok { // also after an error: send what is here first, and the error comes again
			break
		}
		records += batch.Len()
		next.Batches = append(next.Batches, batch)
	}
	return next, nil
}

// errNoMemory says that a bundle is to be sent as it is: the next batch waits for memory.
var errNoMemory = errors.New("aggregate: no memory for another batch")

// nextBatch reads the chunk's next batch when there is memory for it. It waits for that only while the bundle
// has none: what waits must not hold what others wait for.
func (b *bundler) nextBatch(ctx context.Context, into *bundle) (kafkalog.Batch, bool, error) {
	most := int64(b.chunk.Most())
	if most > 0 && !b.memory.Try(most) {
		if len(into.Batches) > 0 {
			return kafkalog.Batch{}, false, errNoMemory
		}
		if err := b.memory.Reserve(ctx, most); err != nil {
			return kafkalog.Batch{}, false, err
		}
	}
	batch, ok, err := b.chunk.Next()
	own := int64(batch.Size())
	b.memory.Release(most - own)
	into.own += own
	return batch, ok, err
}

// more takes what has arrived, and waits for it only if wait is set.
func (b *bundler) more(ctx context.Context, wait bool) (kafkalog.Chunk, bool, error) {
	if !wait {
		return b.reader.Poll()
	}
	c, err := b.reader.Next(ctx)
	return c, err == nil, err
}

// send hands over a bundle as a message that holds its id.
func (b *bundler) send(ctx context.Context, next *bundle) error {
	id := b.flight.put(next)
	m := &sarama.ConsumerMessage{Topic: b.claim.Topic(), Partition: b.claim.Partition(), Value: binary.BigEndian.AppendUint64(nil, id)}
	select {
	case b.out <- m:
		return nil
	case <-ctx.Done():
		b.flight.take(id)
		return ctx.Err()
	}
}

type bundledClaim struct {
	sarama.ConsumerGroupClaim
	out chan *sarama.ConsumerMessage
}

func (c bundledClaim) Messages() <-chan *sarama.ConsumerMessage { return c.out }

// bundleCodec turns a bundle's message back into the bundle.
type bundleCodec struct{ flight *inFlight }

func (c bundleCodec) Decode(data []byte) (any, error) {
	b, ok := c.flight.take(binary.BigEndian.Uint64(data))
	if !ok {
		return nil, errors.New("aggregate: unknown bundle id")
	}
	return b, nil
}

func (bundleCodec) Encode(any) ([]byte, error) {
	return nil, errors.New("aggregate: nothing is emitted through goka")
}
