package fenced

import (
	"context"
	"sync"

	"github.com/IBM/sarama"
)

// Link shares connections to the brokers among many writers, a few to each. A client of sarama finds out who leads
// what; its own connections are not used to append, since a broker works on one request of a connection at a time,
// and an append waits for replicas.
//
// Close it after the writers have returned, and before the client, which it does not own.
type Link struct {
	client sarama.Client
	most   int // connections to a broker

	mu     sync.Mutex
	nodes  map[int32]*node // by broker id
	closed bool
}

// NewLink makes a Link of the brokers that client knows, whose Config().Version must be at least 2.7.0. It
// connects when there is something to send.
func NewLink(client sarama.Client) *Link {
	return &Link{client: client, most: connections, nodes: make(map[int32]*node)}
}

// Close closes all connections, and fails what is on its way.
func (l *Link) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	for _, n := range l.nodes { // no more are added
		n.close()
	}
}

// leader returns the node that leads a partition.
func (l *Link) leader(ctx context.Context, topic string, partition int32) (*node, error) {
	return l.find(ctx, func() (*sarama.Broker, error) { return l.client.Leader(topic, partition) })
}

func (l *Link) coordinator(ctx context.Context, txid string) (*node, error) {
	return l.find(ctx, func() (*sarama.Broker, error) { return l.client.TransactionCoordinator(txid) })
}

// find waits for the broker that ask returns. sarama's calls that wait for an answer ignore contexts. If ctx
// ends first, they run into their own timeouts in the background.
func (l *Link) find(ctx context.Context, ask func() (*sarama.Broker, error)) (*node, error) {
	b, err := await(ctx, ask)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, sarama.ErrClosedClient
	}
	n := l.nodes[b.ID()]
	if n == nil {
		n = &node{conf: l.client.Config(), most: l.most, used: make(map[*connection]bool)}
		l.nodes[b.ID()] = n
	}
	n.at(b.Addr())
	return n, nil
}

func (l *Link) refreshMetadata(ctx context.Context, topic string) error {
	_, err := await(ctx, func() (struct{}, error) { return struct{}{}, l.client.RefreshMetadata(topic) })
	return err
}

func (l *Link) refreshCoordinator(ctx context.Context, txid string) error {
	_, err := await(ctx, func() (struct{}, error) { return struct{}{}, l.client.RefreshTransactionCoordinator(txid) })
	return err
}

// await runs f, and stops waiting for it when ctx ends.
func await[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	ch := make(chan result, 1)
	go func() {
		v, err := f()
		ch <- result{v, err}
	}()
	select {
	case r := <-ch:
		return r.v, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
