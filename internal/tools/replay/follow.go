package replay

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/kafkaconn/clients"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// Follow reads the events of a topic that come from now on, until the context of Next ends: then Next returns
// io.EOF.
func Follow(ctx context.Context, k *kafkaconn.Kafka, name string) (Source, error) {
	logs, stop, err := kafkalog.Open(clients.Log(k, "tallygate-trace"))
	if err != nil {
		return nil, err
	}
	n, err := logs.Partitions(ctx, name)
	if err != nil {
		stop()
		return nil, err
	}
	ends, err := logs.ReadableEnds(ctx, name, n)
	if err != nil {
		stop()
		return nil, err
	}
	f := &following{records: make(chan followed)}
	f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	for partition, end := range ends {
		f.readers.Go(func() { f.read(logs.Read(name, [16]byte{}, partition, end), partition) })
	}
	return &topic{name: name, log: f, repeats: map[int32]*shard.Repeats{}}, nil
}

// following reads partitions that grow.
type following struct {
	records chan followed
	readers sync.WaitGroup
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	stop    func()
	done    atomic.Int64
	current kafkalog.Record
}

// followed is a record, or why there is none.
type followed struct {
	partition int32
	record    kafkalog.Record
	err       error
}

// read hands on what comes of a partition. An error other than records that nobody can read ends it.
func (f *following) read(r *kafkalog.Reader, partition int32) {
	defer r.Close()
	for {
		c, err := r.Next(f.ctx)
		if err != nil {
			f.send(followed{partition: partition, err: err})
			return
		}
		for {
			b, more, err := c.Next()
			if err != nil {
				f.send(followed{partition: partition, err: err})
				return
			}
			if !more {
				break
			}
			if !f.batch(&b, partition) {
				return
			}
		}
	}
}

// batch hands on a batch's records; false when nobody takes them any more.
func (f *following) batch(b *kafkalog.Batch, partition int32) bool {
	for {
		next := followed{partition: partition}
		more, err := b.Next(&next.record)
		if next.err = err; err == nil && !more {
			return true
		}
		if !f.send(next) {
			return false
		}
		if err != nil { // the batch cannot be read, those behind it can
			return true
		}
	}
}

func (f *following) send(next followed) bool {
	select {
	case f.records <- next:
		return true
	case <-f.ctx.Done():
		return false
	}
}

// Next implements eventLog.
func (f *following) Next(ctx context.Context) (partition int32, rec *kafkalog.Record, err error) {
	select {
	case next := <-f.records:
		f.done.Add(1)
		f.current = next.record
		return next.partition, &f.current, next.err
	case <-ctx.Done():
		return 0, nil, io.EOF
	}
}

// Total is not known.
func (f *following) Total() int64 { return 0 }

// Done counts the records so far.
func (f *following) Done() int64 { return f.done.Load() }

// Close ends the readers.
func (f *following) Close() {
	f.cancel()
	f.readers.Wait()
	f.stop()
}
