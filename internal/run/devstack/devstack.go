// Package devstack is Kafka and Redis inside this process, on loopback, for `tallygate dev`
// and for tests that need no real server.
//
// Kafka is franz-go's kfake: the protocol, groups, idempotence and compaction are there, one
// broker serves them from memory. Redis is miniredis. Neither keeps anything after Close.
//
// Differences from the real ones:
//   - An owner's InitProducerID fences the older epoch at once, where Kafka waits for the
//     first record of the new one; and a zombie that refreshes its producer id gets an epoch
//     above its successor's, where Kafka refuses. Only Kafka proves the fence.
//   - A topic of message.timestamp.type=LogAppendTime hands out records whose timestamps are
//     the moment of the append, but marked as CreateTime.
//   - The group coordinator does not wait for a first rebalance's other members.
package devstack

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Config names a Stack's addresses. The zero value is ready to use: free ports.
type Config struct {
	KafkaPort int // on 127.0.0.1; 0 is a free one
	RedisPort int // on 127.0.0.1; 0 is a free one
}

func (c Config) validate() error {
	var errs []error
	for name, port := range map[string]int{"KafkaPort": c.KafkaPort, "RedisPort": c.RedisPort} {
		if port < 0 || port > 65535 {
			errs = append(errs, fmt.Errorf("devstack: %s %d is no port", name, port))
		}
	}
	return errors.Join(errs...)
}

// Stack is a running Kafka and Redis.
type Stack struct {
	Kafka []string // host:port
	Redis string   // host:port

	cluster *kfake.Cluster
	redis   *miniredis.Miniredis
	close   sync.Once
	forget  func() bool
}

// Start runs both servers until Close, or until ctx is done.
func Start(ctx context.Context, cfg Config) (*Stack, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cluster, err := startKafka(cfg.KafkaPort)
	if err != nil {
		return nil, fmt.Errorf("start the embedded Kafka: %w", err)
	}
	redis, err := startRedis(cfg.RedisPort)
	if err != nil {
		cluster.Close()
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	s := &Stack{Kafka: cluster.ListenAddrs(), Redis: redis.Addr(), cluster: cluster, redis: redis}
	s.forget = context.AfterFunc(ctx, s.stop)
	return s, nil
}

// Close stops both servers and drops their data. Clients see their connections end.
func (s *Stack) Close() {
	s.forget()
	s.stop()
}

func (s *Stack) stop() {
	s.close.Do(func() {
		s.redis.Close()
		s.cluster.Close()
	})
}

// minSession is the shortest session timeout that group members may request: tests must notice a
// killed member within seconds.
const minSession = time.Second

func startKafka(port int) (*kfake.Cluster, error) {
	cluster, err := kfake.NewCluster(
		kfake.Ports(port),
		kfake.ClusterID("tallygate-dev"),
		kfake.GroupMinSessionTimeout(minSession),
	)
	if err != nil {
		return nil, err
	}
	cluster.ControlKey(int16(kmsg.Produce), newStamper(cluster).control)
	return cluster, nil
}
