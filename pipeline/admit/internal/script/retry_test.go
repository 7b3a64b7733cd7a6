package script

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

// brokenConn breaks behind the first question that it sends: it arrives, and nobody hears the answer.
type brokenConn struct {
	net.Conn
	questions *atomic.Int32
	broken    bool
}

var errBroken = errors.New("broken by the test")

func (c *brokenConn) Write(p []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(p), []byte("evalsha")) && c.questions.Add(1) == 1 {
		c.broken = true
	}
	return c.Conn.Write(p)
}

func (c *brokenConn) Read(p []byte) (int, error) {
	if c.broken {
		return 0, errors.Join(errBroken, net.ErrClosed)
	}
	return c.Conn.Read(p)
}

// TestAClientsOwnRetryIsAskedAgain: a question that a client repeats by itself may be there twice, and
// the one that comes late must not be granted when the permit has ended.
func TestAClientsOwnRetryIsAskedAgain(t *testing.T) {
	q := &question{ask: protocol.Ask{Key: "k", IDs: []string{"id"}}}
	first, err := q.MarshalBinary()
	second, err2 := q.MarshalBinary()
	if err != nil || err2 != nil || bytes.Equal(first, second) {
		t.Errorf("%x, %v, and again %x, %v", first, err, second, err2)
	}

	server := miniredis.RunT(t)
	open := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { open.Close() })
	r := newRig(t, open, 1)
	r.process()
	ok := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	applied, err := r.shards.Apply(t.Context(), &protocol.Batch{Of: 2, Next: 1, Beat: r.now, Records: []protocol.Record{{Version: 1}}})
	ok(applied, err)
	ok(r.shards.Apply(t.Context(), &protocol.Batch{Of: 2, Start: 1, Next: 2, Beat: r.now, Records: []protocol.Record{
		{Grants: &protocol.Grants{Run: r.run, Life: applied.Life, Until: r.now + event.Minute}},
	}}))

	var questions atomic.Int32
	retries := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: 3, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &brokenConn{Conn: conn, questions: &questions}, err
	}})
	t.Cleanup(func() { retries.Close() })
	r.shards.Client = retries
	w := limits[0]
	w.Amount = event.One
	ask := &protocol.Ask{Key: "k", IDs: []string{"id"}, Before: r.now + event.Second, Version: 1, Wants: []protocol.Want{w}}
	a, err := r.shards.Admit(t.Context(), ask)
	if err != nil || a.Status != protocol.Granted || questions.Load() != 2 {
		t.Fatalf("%+v, %v after %d questions, want a permit after two", a, err, questions.Load())
	}
	// The permit is settled. A question of before that comes now gets none.
	ok(r.shards.Apply(t.Context(), &protocol.Batch{Of: 2, Start: 2, Next: 3, Beat: r.now, Records: []protocol.Record{
		{Level: &protocol.Level{Key: "k", Seq: 1, Latest: r.now, Settles: []string{"id"}}},
	}}))
	if a, err := r.shards.Admit(t.Context(), ask); err != nil || a.Status == protocol.Granted {
		t.Errorf("%+v, %v: a late question was granted", a, err)
	}
}
