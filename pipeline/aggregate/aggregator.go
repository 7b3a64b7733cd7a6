package aggregate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/lovoo/goka"
	"github.com/lovoo/goka/storage"

	"github.com/tallygate/tallygate/internal/retry"
	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// Aggregator is one member of the group. Make it with New and call Run once.
type Aggregator struct {
	cfg     Config
	by      []byte // instance, as a JSON string
	log     *slog.Logger
	names   topics.Names
	metrics *metrics

	found   atomic.Pointer[topics.Layout] // what the topics are; set once they are checked
	env     owner.Env                     // what partitions share; set before Run's first session
	clients clients
	online  atomic.Bool // clients are there
	links   links
	aux     *owner.Aux
	bundles inFlight
	members members
	peers   *peers
	fetcher *kafkalog.Fetcher // of the group's claims
	logs    *kafkalog.Fetcher // of changelogs and rules: no claim waits for these
	reading []func()          // stop them
	book    *rulebook

	listing chan struct{} // holds one for each page of what is blocked that is made

	rulesDiffer string // the members with other rules, as last logged

	stopped atomic.Pointer[error] // why this instance may not go on

	mu      sync.RWMutex
	session *owner.Session // nil between sessions
	parts   map[int32]*owner.Partition
	owns    map[int32]*ownership
}

// clients are the connections of all partitions. A broker works on one request a connection
// at a time, so what must not wait has one of its own: verdicts and the states that they
// wait for (urgent) do not stand behind checkpoints (bulk).
type clients struct {
	urgent, bulk sarama.Client
}

// links are the clients that write, as the writers share them.
type links struct{ urgent, bulk *fenced.Link }

// New checks cfg. Nothing is connected before Run.
func New(cfg Config) (*Aggregator, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	peers, err := newPeers(&cfg)
	if err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	cfg.peerKey = peers.public
	a := &Aggregator{
		cfg:     cfg,
		peers:   peers,
		log:     cfg.Logger,
		names:   topics.NamesOf(cfg.Prefix),
		metrics: newMetrics(cfg.Registry),
		parts:   map[int32]*owner.Partition{},
		owns:    map[int32]*ownership{},
		listing: make(chan struct{}, blockedAtOnce),
	}
	if a.by, err = json.Marshal(a.instance()); err != nil {
		return nil, fmt.Errorf("write the instance's name for the audit topic: %w", err)
	}
	reads, err := cfg.fetching()
	if err == nil {
		reads.OnError = func(_ string, _ int32, err error) { a.metrics.kafkaError(err) }
		a.fetcher, err = kafkalog.New(reads)
	}
	if err == nil {
		a.logs, err = kafkalog.New(reads)
	}
	if err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	a.book = newRulebook(a)
	return a, nil
}

// Prepare creates the topics that are missing, checks the others, and returns how many
// partitions there are. Run calls it when nobody has.
func (a *Aggregator) Prepare(ctx context.Context) (partitions int32, err error) {
	if a.found.Load() != nil {
		return a.found.Load().Partitions, nil
	}
	var found *topics.Layout
	err = whileElecting(ctx, a.log, func() error {
		found, err = topics.Ensure(ctx, a.cfg.Brokers, a.cfg.sarama(), topics.Config{
			Prefix:       a.cfg.Prefix,
			Partitions:   a.cfg.Partitions,
			Replication:  a.cfg.Replication,
			ProducerTime: a.cfg.BrokerTime == brokerTimeCreate,
		})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("prepare the topics: %w", err)
	}
	for _, advice := range found.Advice {
		a.log.Warn("a topic has a setting that is not recommended", "advice", advice)
	}
	a.found.Store(found)
	return found.Partitions, nil
}

// Publish sets Config.Published. It is for those who need to know the number of partitions
// first; call it before Run.
func (a *Aggregator) Publish(to Published) { a.cfg.Published = to }

// Run joins the group and works until ctx ends; then all that was counted is durable, and
// the partitions are released. It returns nil after ctx has ended.
func (a *Aggregator) Run(ctx context.Context) error {
	if err := a.open(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("start the aggregator: %w", err)
	}
	defer a.close()
	sideCtx, stopSide := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stopSide()
	wg.Go(func() { a.aux.Run(sideCtx) })
	wg.Go(func() { a.watchHeat(sideCtx) })
	wg.Go(func() { a.watch(sideCtx) })
	wg.Go(func() { a.watchLag(sideCtx) })
	wg.Go(func() { a.book.run(sideCtx) })

	pause := retry.Backoff{Min: minBackoff, Max: maxBackoff}
	for {
		err := a.runProcessor(ctx)
		switch {
		case a.fatal() != nil:
			return a.fatal()
		case ctx.Err() != nil:
			return nil
		}
		wait := pause.Next()
		a.log.Error("the processor stopped; building a new one", "error", err, "retry_seconds", wait.Seconds())
		if !retry.Sleep(ctx, wait) {
			return nil
		}
	}
}

func (a *Aggregator) open(ctx context.Context) error {
	if _, err := a.Prepare(ctx); err != nil {
		return err
	}
	var err error
	for _, c := range []*sarama.Client{&a.clients.urgent, &a.clients.bulk} {
		cfg := a.cfg.sarama()
		cfg.Producer.MaxMessageBytes = owner.AuxBatchOf(a.found.Load()) // fenced writers have their own bound
		if *c, err = sarama.NewClient(a.cfg.Brokers, cfg); err != nil {
			a.close()
			return fmt.Errorf("connect to Kafka at %v: %w", a.cfg.Brokers, err)
		}
	}
	for _, f := range []*kafkalog.Fetcher{a.fetcher, a.logs} {
		stop, err := f.Start()
		if err != nil {
			a.close()
			return err
		}
		a.reading = append(a.reading, stop)
	}
	a.links = links{fenced.NewLink(a.clients.urgent), fenced.NewLink(a.clients.bulk)}
	if err = whileElecting(ctx, a.log, func() error { return a.book.start(ctx) }); err == nil {
		a.aux, err = owner.NewAux(a.clients.bulk, a.metrics.kafkaError)
	}
	if err != nil {
		a.close()
		return err
	}
	a.env = a.partitionEnv()
	a.online.Store(true)
	return nil
}

// partitionEnv is what the partitions share, once the topics are known.
func (a *Aggregator) partitionEnv() owner.Env {
	found := a.found.Load()
	return owner.Env{
		Names: a.names, Partitions: found.Partitions,
		Client: a.clients.bulk, Urgent: a.links.urgent, Bulk: a.links.bulk, Claims: a.fetcher, Logs: a.logs, Aux: a.aux,
		Rules: a.book, Published: a.cfg.Published, Metrics: a.metrics.partitions, Log: a.log,
		Instance:      a.instance(),
		ProducerTimes: a.cfg.BrokerTime == brokerTimeCreate, AcceptNewTopic: a.cfg.AcceptNewTopic,
		MaxDeadLetter:   owner.DeadLetterOf(found),
		CheckpointEvery: a.cfg.CheckpointEvery,
		OnKafkaError:    a.metrics.kafkaError,
		Fail:            a.fail,
		Closed:          a.remove,
	}
}

func (a *Aggregator) close() {
	a.peers.transport.CloseIdleConnections()
	for _, stop := range a.reading {
		stop()
	}
	for _, c := range []sarama.Client{a.clients.urgent, a.clients.bulk} {
		if c != nil && !c.Closed() {
			if err := c.Close(); err != nil {
				a.log.Warn("closing a Kafka connection failed", "error", err)
			}
		}
	}
}

// runProcessor runs one goka processor until it ends: one runs only once.
func (a *Aggregator) runProcessor(ctx context.Context) error {
	codec := bundleCodec{&a.bundles}
	graph := goka.DefineGroup(goka.Group(a.names.Group),
		goka.Input(goka.Stream(a.names.Events), codec, a.process),
		goka.Loop(codec, a.process),
		goka.Persist(rawCodec{}),
	)
	p, err := goka.NewProcessor(a.cfg.Brokers, graph, append(a.gokaClients(),
		goka.WithLogger(gokaLogger{a.log}),
		goka.WithHasher(newMurmur2),
		goka.WithNilHandling(goka.NilProcess),
		goka.WithPartitionChannelSize(2),
		goka.WithStorageBuilder(a.newOwnership),
		goka.WithUpdateCallback(func(goka.UpdateContext, storage.Storage, string, []byte) error { return nil }),
	)...)
	if err != nil {
		return fmt.Errorf("build the processor: %w", err)
	}
	return p.Run(ctx)
}

// gokaClients are how goka connects. Each client has settings of its own: goka's builders write into those that they
// are given, while clients that were built before still connect, in the background, to brokers of the cluster.
func (a *Aggregator) gokaClients() []goka.ProcessorOption {
	tables := func(brokers []string) (goka.TopicManager, error) {
		return goka.TopicManagerBuilderWithConfig(a.cfg.sarama(), goka.NewTopicManagerConfig())(brokers)
	}
	return []goka.ProcessorOption{
		goka.WithClientID(a.cfg.sarama().ClientID),
		goka.WithConsumerSaramaBuilder(goka.SaramaConsumerBuilderWithConfig(a.cfg.sarama())),
		goka.WithProducerBuilder(goka.ProducerBuilderWithConfig(a.cfg.sarama())),
		goka.WithTopicManagerBuilder(settledTables(tables)), // it is called twice
		goka.WithConsumerGroupBuilder(func(brokers []string, id, _ string) (sarama.ConsumerGroup, error) {
			return a.newGroup(brokers, id, a.cfg.sarama())
		}),
	}
}

// process is goka's callback: it is called by one goroutine a partition.
func (a *Aggregator) process(_ goka.Context, msg any) {
	b := msg.(*bundle)
	b.of.Process(&b.Bundle)
}

// begin notes the session that partitions are opened in from now on; nil ends it.
func (a *Aggregator) begin(s *owner.Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.session = s
}

// enter puts a partition on the list, in the place of one that has failed.
func (a *Aggregator) enter(p *owner.Partition) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parts[p.ID()] = p
}

func (a *Aggregator) partition(id int32) *owner.Partition {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.parts[id]
}

// remove takes a closed partition out of the list, unless a newer one has its place.
func (a *Aggregator) remove(p *owner.Partition) {
	a.metrics.notOwned(p.ID())
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.parts[p.ID()] == p {
		delete(a.parts, p.ID())
	}
}

// fail notes an error that this instance cannot go on after, and returns it.
func (a *Aggregator) fail(err error) error {
	err = fmt.Errorf("%w: %w", owner.ErrFatal, err)
	a.stopped.CompareAndSwap(nil, &err)
	return *a.stopped.Load()
}

func (a *Aggregator) fatal() error {
	if err := a.stopped.Load(); err != nil {
		return *err
	}
	return nil
}

// Ready returns nil when this instance is a member of the group and every partition that it
// was given is recovered, and read: Kafka answers what it is asked for, if only that there is nothing.
func (a *Aggregator) Ready() error {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.session == nil {
		return errors.New("not in a session of the consumer group")
	}
	now := time.Now()
	for _, id := range a.session.Claims()[a.names.Events] {
		p := a.parts[id]
		if p == nil || !p.Live() {
			if o := a.owns[id]; o != nil && o.failure() != nil {
				return fmt.Errorf("partition %d failed, and is taken over again: %w", id, o.failure())
			}
			return fmt.Errorf("partition %d is not recovered yet", id)
		}
		if err := p.Unanswered(now); err != nil {
			return err
		}
	}
	return nil
}

// rawCodec is for the table, which goka neither reads nor writes.
type rawCodec struct{}

func (rawCodec) Encode(v any) ([]byte, error)    { return v.([]byte), nil }
func (rawCodec) Decode(data []byte) (any, error) { return data, nil }

// murmur2 makes goka hash keys as Kafka's Java client does.
type murmur2 struct{ key []byte }

func newMurmur2() hash.Hash32 { return &murmur2{} }

func (m *murmur2) Write(b []byte) (int, error) { m.key = append(m.key, b...); return len(b), nil }
func (m *murmur2) Sum32() uint32               { return event.Murmur2(m.key) & 0x7fffffff }
func (m *murmur2) Sum(b []byte) []byte {
	s := m.Sum32()
	return append(b, byte(s>>24), byte(s>>16), byte(s>>8), byte(s))
}
func (m *murmur2) Reset()         { m.key = m.key[:0] }
func (m *murmur2) Size() int      { return 4 }
func (m *murmur2) BlockSize() int { return 4 }

// gokaLogger shows what goka says to those who debug; what matters is logged by us.
type gokaLogger struct{ log *slog.Logger }

func (l gokaLogger) Printf(format string, args ...any) {
	l.log.Debug("message from goka", "detail", fmt.Sprintf(format, args...))
}
func (l gokaLogger) Print(args ...any) { l.Println(args...) }
func (l gokaLogger) Println(args ...any) {
	l.log.Debug("message from goka", "detail", fmt.Sprint(args...))
}

// now is the moment for metrics and explanations; counting never asks for it.
func now() event.Micros { return event.FromTime(time.Now()) }

// instance is how this aggregator calls itself in the audit topic.
func (a *Aggregator) instance() string {
	return cmp.Or(a.cfg.InstanceID, a.cfg.Advertise, "aggregator")
}
