package fenced

import (
	"context"
	"sync"

	"github.com/IBM/sarama"
)

// Link is a sarama client that many writers share. It closes a broken connection once, however many
// writers noticed. sarama shares a broker's connection: closing it again would break the one that
// another writer has already reopened.
//
// It does not own the client: close that after the writers have returned.
type Link struct {
	client sarama.Client

	mu    sync.Mutex
	conns map[int32]*conn // by broker id; the latest one
}

// conn counts the connections to one broker that were given up.
type conn struct {
	broker *sarama.Broker

	mu  sync.Mutex // held while one is being closed, so that no writer begins to use it
	gen int
}

// lease is one connection to a broker; gen distinguishes it from its successors.
type lease struct {
	*conn
	gen int
}

// NewLink shares client, whose Config().Version must be at least 2.7.0.
func NewLink(client sarama.Client) *Link {
	return &Link{client: client, conns: make(map[int32]*conn)}
}

// open waits for a connection to the broker that find returns. sarama's calls that connect, or wait
// for an answer, ignore contexts. If ctx ends first, they run into their own timeouts in the
// background.
func (l *Link) open(ctx context.Context, find func() (*sarama.Broker, error)) (lease, error) {
	return await(ctx, func() (lease, error) {
		b, err := find() // also opens it
		if err != nil {
			return lease{}, err
		}
		c := l.current(b)
		if ok, err := b.Connected(); err != nil {
			return lease{}, err
		} else if !ok {
			return lease{}, sarama.ErrNotConnected
		}
		return c, nil
	})
}

func (l *Link) leader(ctx context.Context, topic string, partition int32) (lease, error) {
	return l.open(ctx, func() (*sarama.Broker, error) { return l.client.Leader(topic, partition) })
}

func (l *Link) coordinator(ctx context.Context, txid string) (lease, error) {
	return l.open(ctx, func() (*sarama.Broker, error) { return l.client.TransactionCoordinator(txid) })
}

func (l *Link) current(b *sarama.Broker) lease {
	l.mu.Lock()
	c, ok := l.conns[b.ID()]
	if !ok || c.broker != b {
		c = &conn{broker: b}
		l.conns[b.ID()] = c
	}
	l.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return lease{c, c.gen}
}

// giveUp closes a failed connection, unless that was done already. sarama opens the broker again
// when it is next asked for it.
func (c lease) giveUp(ctx context.Context) {
	_, _ = await(ctx, func() (struct{}, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.conn.gen == c.gen {
			_ = c.broker.Close() // an error means that it was closed already
			c.conn.gen++
		}
		return struct{}{}, nil
	})
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
