package aggregate

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// bundleSize is how many records goka receives as one message, if so many are there. At this size
// goka costs next to nothing. A larger record batch stays whole.
const bundleSize = 256

// bundle is records of one claim, with their partition.
type bundle struct {
	owner.Bundle
	of *owner.Partition
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

func (f *inFlight) clear() { f.byID.Clear() }

type bundler struct {
	part   *owner.Partition
	reader *kafkalog.Reader
	claim  sarama.ConsumerGroupClaim
	source shard.Source
	out    chan *sarama.ConsumerMessage
	flight *inFlight
	sent   int64 // the offset after the last bundle
}

// run fills bundles with the batches that are there, and waits only for the first of a bundle. It
// returns ctx's error, or the error after which nothing more can be read.
func (b *bundler) run(ctx context.Context) error {
	var chunk kafkalog.Chunk
	for {
		next := &bundle{of: b.part, Bundle: owner.Bundle{Source: b.source}}
		for records := 0; records < bundleSize; {
			batch, ok, err := chunk.Next()
			next.Place = max(next.Place, chunk.Place())
			if err == nil && !ok {
				// Batches with nothing but markers move the place all the same.
				if chunk, ok, err = b.more(ctx, next.Place <= b.sent); ok {
					continue
				}
			}
			if err != nil && next.Place <= b.sent {
				return err
			}
			if !ok { // also after an error: send what is here first, and the error comes again
				break
			}
			records += batch.Len()
			next.Batches = append(next.Batches, batch)
		}
		if err := b.send(ctx, next); err != nil {
			return err
		}
		b.sent = next.Place
	}
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
	m := &sarama.ConsumerMessage{Topic: b.claim.Topic(), Partition: b.claim.Partition(),
		Value: binary.BigEndian.AppendUint64(nil, b.flight.put(next))}
	select {
	case b.out <- m:
		return nil
	case <-ctx.Done():
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
	b, ok := c.flight.byID.LoadAndDelete(binary.BigEndian.Uint64(data))
	if !ok {
		return nil, errors.New("aggregate: unknown bundle id")
	}
	return b, nil
}

func (bundleCodec) Encode(any) ([]byte, error) {
	return nil, errors.New("aggregate: nothing is emitted through goka")
}
