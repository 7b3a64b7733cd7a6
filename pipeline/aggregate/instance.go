package aggregate

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/budget"
	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/rules"
)

// instance is the state shared by all parts of an Aggregator: connections, the current session, and the owned
// partitions.
type instance struct {
	cfg     Config
	log     *slog.Logger
	names   topics.Names
	metrics *metrics

	found   atomic.Pointer[topics.Layout] // set once the topics are checked
	env     owner.Env                     // shared by partitions; set before Run's first session
	clients clients
	online  atomic.Bool // clients are set
	links   links
	aux     *owner.Aux
	budget  *budget.Budget
	bundles inFlight
	members members
	fetcher *kafkalog.Fetcher // of the group's claims
	logs    *kafkalog.Fetcher // of changelogs and rules: no claim waits for these
	reading []func()          // stop fetcher and logs
	asking  questions
	book    *rulebook
	faults  faults
	lagging atomic.Pointer[[]lagging] // of all partitions; nil until it is known
	differ  atomic.Int32              // members that count by other rules
	packs   packs
	tallies tallies
	audits  audits

	rulesTold func(version uint64, record []byte, set *rules.Set) // nil: nobody is told

	stopped atomic.Pointer[error] // why this instance cannot continue; nil while it can

	mu      sync.RWMutex   // guards what follows; see the package comment for the order of locks
	session *owner.Session // nil between sessions
	parts   map[int32]*owner.Partition
	owns    map[int32]*ownership
}

// watching observes the group and Kafka, for metrics and the log.
type watching struct {
	*instance
	rulesDiffer string // the members with different rules, as last logged
}

// clients are the connections of all partitions. A broker handles one request per connection at a
// time. So verdicts, and the states that they wait for (urgent), have connections of their own and
// do not wait behind checkpoints (bulk).
type clients struct {
	urgent, bulk sarama.Client
}

// links are the clients that write, shared by the writers.
type links struct{ urgent, bulk *fenced.Link }

// Prepare creates missing topics, checks the others, and returns the number of partitions. Call it
// before Run to know that number; Run calls it otherwise.
func (a *instance) Prepare(ctx context.Context) (partitions int32, err error) {
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
			// Those of this instance's file. When the group has others, the rulebook compares.
			LongestVerdict: a.cfg.Rules.LongestVerdict().Duration(),
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

// Publish sets Config.Published, for callers who first need the number of partitions. Call it
// before Run.
func (a *instance) Publish(to Published) { a.cfg.Published = to }

// PublishStrict sets Config.Strict, for such callers.
func (a *instance) PublishStrict(to Strict) { a.cfg.Strict = to }

func (a *instance) open(ctx context.Context) error {
	if _, err := a.Prepare(ctx); err != nil {
		return err
	}
	var err error
	for _, c := range []*sarama.Client{&a.clients.urgent, &a.clients.bulk} {
		cfg := a.cfg.sarama()
		// Only auxiliary output: fenced writers have their own bound.
		cfg.Producer.MaxMessageBytes = owner.AuxBatchOf(a.found.Load())
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
	if err = whileElecting(ctx, a.log, func() error { return a.book.start(ctx) }); err != nil {
		a.close()
		return err
	}
	p, err := sarama.NewAsyncProducerFromClient(a.clients.bulk)
	if err != nil {
		a.close()
		return fmt.Errorf("start the dead-letter and audit producer: %w", err)
	}
	a.aux = owner.NewAux(p, a.budget, a.metrics.kafkaError)
	a.env = a.partitionEnv()
	a.online.Store(true)
	return nil
}

// partitionEnv returns what the partitions share, once the topics are known.
func (a *instance) partitionEnv() owner.Env {
	found := a.found.Load()
	return owner.Env{
		Names: a.names, Partitions: found.Partitions,
		Kafka: &owner.Kafka{
			Group: a.names.Group, Client: a.clients.bulk, Urgent: a.links.urgent, Bulk: a.links.bulk, Claims: a.fetcher, Logs: a.logs,
			OnError: a.metrics.kafkaError,
		},
		Claims: a.fetcher, Aux: a.aux,
		Rules: a.book, Published: a.cfg.Published, Strict: a.cfg.Strict, Metrics: a.metrics.partitions, Log: a.log,
		Instance:      a.name(),
		ProducerTimes: a.cfg.BrokerTime == brokerTimeCreate, AcceptNewTopic: a.cfg.AcceptNewTopic,
		MaxDeadLetter:   owner.DeadLetterOf(found),
		CheckpointEvery: a.cfg.CheckpointEvery,
		Forwarding:      owner.NewForwarding(a.budget, found.Partitions), Packs: a.packs.allowed, PackAfter: cmp.Or(a.cfg.packAfter, 3*time.Second),
		Tracer: a.cfg.Tracer, TraceEvery: a.cfg.TraceEvery,
		Fail:   a.fail,
		Closed: a.remove,
	}
}

// askedWithin bounds a stop's wait for the answers to questions that nobody waits for.
const askedWithin = time.Second

func (a *instance) close() {
	a.asking.await()
	for _, stop := range a.reading {
		stop()
	}
	for _, l := range []*fenced.Link{a.links.urgent, a.links.bulk} {
		if l != nil {
			l.Close()
		}
	}
	for _, c := range []sarama.Client{a.clients.urgent, a.clients.bulk} {
		if c != nil && !c.Closed() {
			if err := c.Close(); err != nil {
				a.log.Warn("closing a Kafka connection failed", "error", err)
			}
		}
	}
}

// questions to Kafka that nobody waits for.
type questions struct {
	mu    sync.Mutex
	ended bool
	all   sync.WaitGroup
}

// start asks one in a goroutine, unless the instance is being closed.
func (q *questions) start(ask func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended {
		q.all.Go(ask)
	}
	return !q.ended
}

// await lets them end: sarama may open a connection behind the client's Close, and
// nobody would close that one. A Kafka that does not answer within a second has no such connection.
func (q *questions) await() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	answered := make(chan struct{})
	go func() {
		q.all.Wait()
		close(answered)
	}()
	patience := time.NewTimer(askedWithin)
	defer patience.Stop()
	select {
	case <-answered:
	case <-patience.C:
	}
}

// begin sets the session that partitions are opened in from now on; nil ends it.
func (a *instance) begin(s *owner.Session) {
	if s != nil {
		a.faults.note(inGroup, nil)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.session = s
}

// enter puts a partition on the list, in place of one that has failed.
func (a *instance) enter(p *owner.Partition) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parts[p.ID()] = p
}

func (a *instance) partition(id int32) *owner.Partition {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.parts[id]
}

// remove takes a closed partition off the list, unless a newer one has its place.
func (a *instance) remove(p *owner.Partition) {
	a.metrics.notOwned(p.ID())
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.parts[p.ID()] == p {
		delete(a.parts, p.ID())
	}
}

// owned returns the partitions of this instance.
func (a *instance) owned() []*owner.Partition {
	a.mu.RLock()
	defer a.mu.RUnlock()
	out := make([]*owner.Partition, 0, len(a.parts))
	for _, p := range a.parts {
		out = append(out, p)
	}
	return out
}

// fail notes an error after which this instance cannot continue, and returns it.
func (a *instance) fail(err error) error {
	err = fmt.Errorf("%w: %w", owner.ErrFatal, err)
	a.stopped.CompareAndSwap(nil, &err)
	return *a.stopped.Load()
}

func (a *instance) fatal() error {
	if err := a.stopped.Load(); err != nil {
		return *err
	}
	return nil
}

// now is the time for metrics and explanations. Counting never uses it.
func now() event.Micros { return event.FromTime(time.Now()) }

// name names this instance in the audit topic.
func (a *instance) name() string {
	return cmp.Or(a.cfg.InstanceID, a.cfg.Advertise, "aggregator")
}
