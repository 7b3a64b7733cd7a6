package servers

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestAClusterOfOnesOwn(t *testing.T) {
	c := StartRedisCluster(t, 3)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()[:1]})
	defer func() { _ = rdb.Close() }()
	for _, key := range []string{"a", "b", "c", "d"} {
		if err := rdb.Set(t.Context(), key, key, 0).Err(); err != nil {
			t.Error(err)
		}
	}
}

func TestSentinelsOfOnesOwn(t *testing.T) {
	s := StartRedisSentinel(t, 3)
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: Master, SentinelAddrs: s.Addrs()})
	defer func() { _ = rdb.Close() }()
	set := func(key string) error { return rdb.Set(context.Background(), key, key, 0).Err() }
	if err := set("both have it"); err != nil {
		t.Fatal(err)
	}
	s.Replica.until("the replica has it", func(r *redis.Client) bool { return r.Exists(context.Background(), "both have it").Val() == 1 })
	s.CutReplica()
	if err := set("the replica lacks it"); err != nil {
		t.Fatal(err)
	}
	s.FailOver()
	s.Replica.until("it can be written", func(*redis.Client) bool { return set("after") == nil })
	if n, err := rdb.Exists(t.Context(), "both have it", "the replica lacks it", "after").Result(); n != 2 || err != nil {
		t.Errorf("%d of the keys are there (%v), want 2", n, err)
	}
}

func TestANetworkWithFaults(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = echo.Close() }()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				buf := make([]byte, 1)
				for {
					if _, err := c.Read(buf); err != nil {
						return
					}
					if _, err := c.Write(buf); err != nil {
						return
					}
				}
			}()
		}
	}()
	n := NewNetwork(t)
	dial := func() net.Conn {
		c, err := n.Dial(t.Context(), "tcp", echo.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(c net.Conn, patience time.Duration) error {
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Write([]byte{1}); err != nil {
			return err
		}
		_, err := c.Read(make([]byte, 1))
		return err
	}
	c := dial()
	if err := ask(c, time.Minute); err != nil {
		t.Fatal(err)
	}
	n.Stall()
	timeout := func(err error) bool {
		var e net.Error
		return errors.As(err, &e) && e.Timeout()
	}
	if err := ask(c, 50*time.Millisecond); !timeout(err) {
		t.Errorf("a stalled connection: %v, want a timeout", err)
	}
	if err := ask(dial(), 50*time.Millisecond); !timeout(err) {
		t.Errorf("a new one: %v, want a timeout", err)
	}
	n.Heal()
	if err := ask(c, 50*time.Millisecond); !timeout(err) {
		t.Errorf("one that was stalled: %v, want a timeout", err)
	}
	c = dial()
	if err := ask(c, time.Minute); err != nil {
		t.Errorf("after the repair: %v", err)
	}
	n.Cut()
	if err := ask(c, time.Minute); err == nil || timeout(err) {
		t.Errorf("a connection that was cut: %v, want that it is closed", err)
	}
	if err := ask(dial(), time.Minute); err == nil || timeout(err) {
		t.Errorf("a new one: %v, want that it is closed", err)
	}
	n.Heal()
	n.Slow(30 * time.Millisecond)
	if began := time.Now(); ask(dial(), time.Minute) != nil || time.Since(began) < 60*time.Millisecond {
		t.Errorf("a slow network took %v there and back", time.Since(began))
	}
}
