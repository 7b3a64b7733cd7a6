package topics

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/tallygate/tallygate/internal/base/retry"
)

// pollEvery is the interval at which brokers are asked whether they know a new topic.
const pollEvery = 50 * time.Millisecond

// found is a topic that exists.
type found struct {
	id          sarama.Uuid
	partitions  int32
	replication int16
	ready       bool    // every partition has a leader
	behind      []int32 // partitions with a replica that is not in sync
	leaderless  []int32
	settings    map[string]string // when they are compared
}

// ensurer is one call of Ensure.
type ensurer struct {
	cfg    Config
	names  Names
	addrs  []string
	conf   *sarama.Config
	client sarama.Client
	admin  sarama.ClusterAdmin
}

// Ensure creates the missing topics and waits until all brokers know them. It changes no existing
// topic. A wrong required setting is part of the returned error, topic by topic, with the command
// that fixes it; a wrong recommended one is in Layout.Advice. Several processes may call it at
// once. conf.Version must be at least 2.8.0.
func Ensure(ctx context.Context, addrs []string, conf *sarama.Config, cfg Config) (*Layout, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if !conf.Version.IsAtLeast(sarama.V2_8_0_0) {
		return nil, fmt.Errorf("topics: the Kafka version is set to %v, at least 2.8.0 is needed for topic ids", conf.Version)
	}
	e, err := newEnsurer(addrs, conf, cfg)
	if err != nil {
		return nil, err
	}
	defer e.close()
	l, err := e.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("topics of %q: %w", cfg.Prefix, err)
	}
	return l, nil
}

func newEnsurer(addrs []string, conf *sarama.Config, cfg Config) (*ensurer, error) {
	client, err := sarama.NewClient(addrs, conf)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka at %s: %w", strings.Join(addrs, ", "), err)
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		_ = client.Close()
		return nil, fmt.Errorf("administer Kafka at %s: %w", strings.Join(addrs, ", "), err)
	}
	return &ensurer{cfg, NamesOf(cfg.Prefix), addrs, conf, client, admin}, nil
}

func (e *ensurer) close() { _ = e.client.Close() }

func (e *ensurer) run(ctx context.Context) (*Layout, error) {
	have, err := e.describe()
	if err != nil {
		return nil, err
	}
	partitions, advice := e.partitions(have)
	specs := e.cfg.specs(partitions, e.replication())
	faults := e.checkPartitions(specs, have)
	if len(faults) == 0 {
		if err := e.create(ctx, specs, have); err != nil {
			return nil, err
		}
		if have, err = e.await(ctx); err != nil {
			return nil, err
		}
		faults = e.checkPartitions(specs, have) // another process may have created some
	}
	wrong, settings, err := e.checkSettings(specs, have)
	if err != nil {
		return nil, err
	}
	must, should := split(append(faults, wrong...))
	if err := errors.Join(must...); err != nil {
		return nil, err
	}
	l := &Layout{Names: e.names, Partitions: partitions, IDs: make(map[string]sarama.Uuid), MaxBytes: make(map[string]int), Advice: append(advice, should...)}
	if ms := number(settings[e.names.Verdicts]["retention.ms"]); ms > 0 {
		l.VerdictRetention = time.Duration(min(ms, int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
	}
	for name, t := range have {
		if t.id == (sarama.Uuid{}) {
			return nil, fmt.Errorf("the broker does not tell the id of %s: Kafka 2.8 or later is needed", name)
		}
		l.IDs[name] = t.id
		l.MaxBytes[name] = int(number(settings[name]["max.message.bytes"]))
	}
	return l, nil
}

func (e *ensurer) replication() int16 {
	if e.cfg.Replication > 0 {
		return e.cfg.Replication
	}
	return int16(min(3, max(1, len(e.client.Brokers()))))
}

func (e *ensurer) describe() (map[string]found, error) {
	metadata, err := metadataOf(e.client, e.names.All())
	if err != nil {
		return nil, err
	}
	return toFound(metadata)
}

func toFound(metadata []*sarama.TopicMetadata) (map[string]found, error) {
	have := make(map[string]found)
	for _, m := range metadata {
		switch m.Err {
		case sarama.ErrNoError, sarama.ErrLeaderNotAvailable:
		case sarama.ErrUnknownTopicOrPartition:
			continue
		default:
			return nil, fmt.Errorf("describe topic %s: %w", m.Name, m.Err)
		}
		t := found{id: m.Uuid, partitions: int32(len(m.Partitions)), ready: len(m.Partitions) > 0}
		for _, p := range m.Partitions {
			t.replication = int16(len(p.Replicas))
			if p.Err == sarama.ErrLeaderNotAvailable || p.Leader < 0 {
				t.leaderless, t.ready = append(t.leaderless, p.ID), false
			} else if len(p.Isr) < len(p.Replicas) {
				t.behind = append(t.behind, p.ID)
			}
		}
		have[m.Name] = t
	}
	return have, nil
}

// create creates the missing topics. One that another process creates first is as good.
func (e *ensurer) create(ctx context.Context, specs []spec, have map[string]found) error {
	var errs []error
	for _, s := range specs {
		if _, ok := have[s.name]; ok {
			continue
		}
		if ctx.Err() != nil {
			return fmt.Errorf("create topic %s: %w", s.name, context.Cause(ctx))
		}
		detail := &sarama.TopicDetail{NumPartitions: s.partitions, ReplicationFactor: e.replication(), ConfigEntries: map[string]*string{}}
		for _, c := range s.settings {
			detail.ConfigEntries[c.key] = &c.value
		}
		err := e.createOne(ctx, s.name, detail)
		if err != nil && !errors.Is(err, sarama.ErrTopicAlreadyExists) {
			errs = append(errs, fmt.Errorf("create topic %s: %w; to create it yourself: %s", s.name, err, e.createCommand(s)))
		}
	}
	return errors.Join(errs...)
}

// controllerTries bounds the controllers that are asked to create a topic. After a failure the next one is elected
// within seconds.
const controllerTries = 20

// createOne asks the controller. sarama remembers which broker that is, even after it has failed.
func (e *ensurer) createOne(ctx context.Context, name string, detail *sarama.TopicDetail) error {
	for try := 1; ; try++ {
		err := e.admin.CreateTopic(name, detail, false)
		if _, answered := errors.AsType[*sarama.TopicError](err); err == nil || answered || try == controllerTries {
			return err
		}
		_, _ = e.client.RefreshController() // the next attempt reports errors
		if !retry.Sleep(ctx, time.Duration(try)*pollEvery) {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// await waits until every broker shows every topic with all its leaders.
func (e *ensurer) await(ctx context.Context) (map[string]found, error) {
	for {
		have, missing, err := e.everywhere()
		if err == nil && missing == "" {
			return have, nil
		}
		if !retry.Sleep(ctx, pollEvery) {
			if err == nil {
				err = errors.New(missing)
			}
			return nil, fmt.Errorf("wait for topics: %w (last: %w)", context.Cause(ctx), err)
		}
		if err != nil { // a broker may have left
			_ = e.client.RefreshMetadata()
		}
	}
}

func (e *ensurer) everywhere() (have map[string]found, missing string, err error) {
	for _, b := range e.client.Brokers() {
		if err := b.Open(e.conf); err != nil && !errors.Is(err, sarama.ErrAlreadyConnected) {
			return nil, "", fmt.Errorf("connect to broker %s: %w", b.Addr(), err)
		}
		resp, err := b.GetMetadata(sarama.NewMetadataRequest(e.conf.Version, e.names.All()))
		if err != nil {
			_ = b.Close() // an error means that it was closed already
			return nil, "", fmt.Errorf("ask broker %s for its topics: %w", b.Addr(), err)
		}
		if have, err = toFound(resp.Topics); err != nil {
			return nil, "", err
		}
		lacking := slices.DeleteFunc(e.names.All(), func(n string) bool { return have[n].ready })
		if len(lacking) > 0 {
			return nil, fmt.Sprintf("broker %s does not know %s yet, or a leader", b.Addr(), strings.Join(lacking, ", ")), nil
		}
	}
	if have == nil {
		return nil, "", sarama.ErrOutOfBrokers
	}
	return have, "", nil
}
