package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	topicName = "tallygate.verdicts"
	hold      = 30 * event.Second
	beat      = 20 * time.Millisecond
)

// rig is a verdict topic, shards, and what owners know. Its clock stands still but for tick.
type rig struct {
	t      *testing.T
	addrs  []string
	client *kgo.Client

	mu      sync.Mutex
	now     event.Micros
	wrong   event.Micros                        // by how much Redis' clocks are ahead
	written map[int32]map[int64]protocol.Record // by partition and offset
	ends    map[int32]int64                     // of the verdict topic
	said    map[int32]uint64                    // the latest version there
	input   map[int32]int64                     // ends of the events' topic
	loop    map[int32]int64
	asked   int // for an end

	shards []*memory
	calls  int
	fails  func(call int) error // before a call of Redis; nil: none fails
	mutes  func(call int) error // behind it: its answer is lost
	puts   []uint64
	texts  map[uint64]string // of rules: those that were put last, while Redis keeps them
	lives  int
}

// memory is a shard: the reference of the scripts.
type memory struct {
	*protocol.Memory
	run     string
	applied []protocol.Batch // those that were taken
}

func newRig(t *testing.T, partitions int32, shards int) *rig {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topicName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	r := &rig{
		t: t, addrs: cluster.ListenAddrs(), client: client, now: 1_790_000_000 * event.Second,
		written: map[int32]map[int64]protocol.Record{}, ends: map[int32]int64{}, said: map[int32]uint64{}, input: map[int32]int64{}, loop: map[int32]int64{},
	}
	for i := range shards {
		r.shards = append(r.shards, &memory{Memory: &protocol.Memory{}, run: fmt.Sprint("run", i)})
	}
	return r
}

// start runs a publisher; the returned function stops it.
func (r *rig) start(change func(*Config)) (*Publisher, func()) {
	r.t.Helper()
	cfg := Config{Redis: r, Ends: r, Kafka: r.addrs, Partitions: 1, Shards: len(r.shards), Heartbeat: beat, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	p, err := New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	p.mono = func() event.Micros { return r.time() - 1_789_999_000*event.Second }
	if cfg.Redis == Shards(r) {
		p.clock = r.time
	}
	return p, testrun.Start(r.t, p.Run)
}

func (r *rig) time() event.Micros {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *rig) tick(by event.Micros) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now += by
}

// replace makes another process of a shard, with another memory.
func (r *rig) replace(shard int, m *protocol.Memory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lives++
	r.shards[shard] = &memory{Memory: m, run: fmt.Sprint("another", r.lives)}
}

func (r *rig) process(m *memory) protocol.Process {
	r.lives++
	return protocol.Process{Run: m.run, Time: r.now + r.wrong, New: fmt.Sprint("epoch", r.lives)}
}

// call is one call of a shard; its answer may be lost.
func (r *rig) call(do func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if r.fails != nil {
		if err := r.fails(r.calls); err != nil {
			return err
		}
	}
	do()
	if r.mutes != nil {
		return r.mutes(r.calls)
	}
	return nil
}

func (r *rig) Apply(_ context.Context, b *protocol.Batch) (a protocol.Applied, err error) {
	err = r.call(func() {
		m := r.shards[int(b.Partition)%len(r.shards)]
		if a = m.Apply(r.process(m), b); a.OK {
			m.applied = append(m.applied, *b)
			r.check(b)
		}
	})
	return a, err
}

// check holds a batch against the topic: nothing that settles a permit is left out.
func (r *rig) check(b *protocol.Batch) {
	var want, got []string
	version := uint64(0)
	for offset := b.Start; offset < b.Next; offset++ {
		rec := r.written[b.Partition][offset]
		if rec.Level != nil {
			want = append(want, rec.Level.Settles...)
		}
		version = max(version, rec.Version)
	}
	for i := range b.Records {
		if l := b.Records[i].Level; l != nil {
			got = append(got, l.Settles...)
		}
		if b.Records[i].Version == version {
			version = 0
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !b.Begin && (!slices.Equal(got, want) || version != 0) {
		r.t.Errorf("partition %d, [%d, %d): %v are settled, want %v; version %d is left out", b.Partition, b.Start, b.Next, got, want, version)
	}
}

func (r *rig) Report(_ context.Context, shard int, partition int32, forwarded protocol.Mark) (a protocol.Applied, err error) {
	err = r.call(func() { m := r.shards[shard]; a = m.Report(r.process(m), partition, forwarded) })
	return a, err
}

func (r *rig) PutRules(_ context.Context, version uint64, text []byte) error {
	return r.call(func() {
		r.puts = append(r.puts, version)
		r.texts = map[uint64]string{version: string(text)}
	})
}

func (r *rig) HasRules(_ context.Context, version uint64) (has bool, err error) {
	err = r.call(func() { _, has = r.texts[version] })
	return has, err
}

func (r *rig) InputEnd(_ context.Context, partition int32) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	return r.input[partition], nil
}

func (r *rig) LoopEnd(_ context.Context, partition int32) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loop[partition], nil
}

// admit asks for one permit.
func (r *rig) admit(partition int32, key, id string) protocol.Answer {
	return r.admitFor(partition, key, id, hold)
}

func (r *rig) admitFor(partition int32, key, id string, hold event.Micros) protocol.Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.shards[int(partition)%len(r.shards)]
	if m.Partitions[partition] == nil {
		return protocol.Answer{Status: protocol.Doubt}
	}
	return m.Admit(r.process(m), &protocol.Ask{
		Partition: partition, Key: key, IDs: []string{id}, Before: r.now + 2*event.Second, Version: m.Partitions[partition].Version,
		Wants: []protocol.Want{{Limit: protocol.Limit{Name: "day", Grain: event.Day, Keeps: event.Day, Hold: hold}, Amount: event.One, Threshold: 10 * event.One}},
	})
}

// look reads a shard.
func (r *rig) look(shard int, at func(*memory)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at(r.shards[shard])
}

// settled returns the settled mark of a partition.
func (r *rig) settled(partition int32) (at event.Micros) {
	r.look(int(partition)%len(r.shards), func(m *memory) {
		if p := m.Partitions[partition]; p != nil {
			at = p.Settled
		}
	})
	return at
}

// write appends to a partition; nil is a record that is not about strict limits.
func (r *rig) write(partition int32, records ...*protocol.Record) (first, next int64, offered []Record) {
	r.t.Helper()
	batch := make([]*kgo.Record, len(records))
	for i, rec := range records {
		batch[i] = &kgo.Record{Topic: topicName, Partition: partition, Key: []byte("uid=1|rule"), Value: []byte("{}")}
		if rec != nil {
			key, value, err := rec.Encode()
			if err != nil {
				r.t.Fatal(err)
			}
			batch[i].Key, batch[i].Value = key, value
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.client.ProduceSync(context.Background(), batch...).FirstErr(); err != nil {
		r.t.Error(err)
		return 0, 0, nil
	}
	if r.written[partition] == nil {
		r.written[partition] = map[int64]protocol.Record{}
	}
	for i, rec := range records {
		if rec != nil {
			r.written[partition][batch[i].Offset] = *rec
			r.said[partition] = cmp.Or(rec.Version, r.said[partition])
			offered = append(offered, Record{batch[i].Offset, *rec})
		}
	}
	r.ends[partition] = batch[len(batch)-1].Offset + 1
	return batch[0].Offset, r.ends[partition], offered
}

// owner is a partition's, which has counted all there is unless it lags.
type owner struct {
	r         *rig
	p         *Publisher
	partition int32
	took      *protocol.Grants

	mu      sync.Mutex
	fenced  bool
	lags    bool // it counts nothing
	refuses int  // so many calls of CountLost fail
	lost    []protocol.Lost
	grants  []protocol.Grants
}

var errFenced = errors.New("another process is the owner")

// own makes p the publisher of a partition.
func (r *rig) own(p *Publisher, partition int32, last *protocol.Grants) *owner {
	o := &owner{r: r, p: p, partition: partition, took: last}
	r.mu.Lock()
	end := r.ends[partition]
	r.mu.Unlock()
	o.set(func(o *owner) { p.Own(partition, o, end) }) // as owners do, under their lock
	return o
}

// put writes records, and offers them.
func (o *owner) put(records ...*protocol.Record) {
	o.r.t.Helper()
	first, next, offered := o.r.write(o.partition, records...)
	o.p.Offer(o.partition, first, next, offered)
}

func (o *owner) Progress(context.Context) (protocol.Progress, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.r.mu.Lock()
	defer o.r.mu.Unlock()
	if o.lags {
		return protocol.Progress{}, nil
	}
	return protocol.Progress{Input: o.r.input[o.partition], Loop: o.r.loop[o.partition], Verdicts: o.r.ends[o.partition], Rules: o.r.said[o.partition]}, nil
}

func (o *owner) Grant(_ context.Context, g *protocol.Grants) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fenced {
		return errFenced
	}
	o.grants = append(o.grants, *g)
	o.put(&protocol.Record{Grants: g})
	return nil
}

func (o *owner) CountLost(_ context.Context, lost []protocol.Lost) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refuses > 0 {
		o.refuses--
		return errFenced
	}
	o.lost = append(o.lost, lost...)
	return nil
}

func (o *owner) LastGrants() *protocol.Grants {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.took
}

func (o *owner) last() *protocol.Grants {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.grants) == 0 {
		return nil
	}
	g := o.grants[len(o.grants)-1]
	return &g
}

func (o *owner) set(change func(*owner)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(o)
}

// level is a key's, with so much counted today.
func level(key string, seq int64, now event.Micros, counted event.Decimal, settles ...string) *protocol.Record {
	l := &protocol.Level{Key: key, Seq: seq, Latest: now, Settles: settles}
	if counted > 0 {
		l.Sections = []protocol.Section{{Name: "day", Steps: []protocol.Step{{Until: now + event.Day, Amount: counted * event.One}}}}
	}
	return &protocol.Record{Level: l}
}

func version(v uint64) *protocol.Record { return &protocol.Record{Version: v} }

func kgoRecord(key, value string) *kgo.Record {
	return &kgo.Record{Topic: topicName, Key: []byte(key), Value: []byte(value)}
}
