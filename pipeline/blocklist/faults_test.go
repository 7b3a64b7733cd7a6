package blocklist

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/publish"
)

// TestRedisFaults lets traffic flow through a publisher and a feed while something happens to their
// Redis. No user is let go too early or held too long meanwhile, and afterwards Redis and the table
// have what was published.
func TestRedisFaults(t *testing.T) {
	for name, fault := range map[string]func(t *testing.T) (dial dialer, happens func(s *stage)){
		"killed, and empty when it comes back": func(t *testing.T) (dialer, func(*stage)) {
			server := servers.StartRedis(t)
			return single(server.Addr()), func(*stage) { server.Kill(); server.Start() }
		},
		"killed, with an append-only file": func(t *testing.T) (dialer, func(*stage)) {
			server := servers.StartRedis(t, "--appendonly", "yes")
			return single(server.Addr()), func(*stage) { server.Kill(); server.Start() }
		},
		"flushed": func(t *testing.T) (dialer, func(*stage)) {
			return single(servers.StartRedis(t).Addr()), func(s *stage) { s.flush() }
		},
		"asleep for longer than its clients wait": func(t *testing.T) (dialer, func(*stage)) {
			return single(servers.StartRedis(t, "--enable-debug-command", "yes").Addr()), func(s *stage) {
				for range 2 {
					if err := s.redis.Do(t.Context(), "DEBUG", "SLEEP", "1.5").Err(); err != nil {
						t.Error(err)
					}
				}
			}
		},
		"restored from an old snapshot": func(t *testing.T) (dialer, func(*stage)) {
			server := servers.StartRedis(t)
			return single(server.Addr()), func(s *stage) {
				if err := s.redis.Save(t.Context()).Err(); err != nil {
					t.Error(err)
				}
				s.more()
				server.Kill()
				server.Start()
			}
		},
		"replaced by a replica that lags": func(t *testing.T) (dialer, func(*stage)) {
			sentinels := servers.StartRedisSentinel(t, 3)
			return watched(sentinels.Addrs()), func(s *stage) {
				sentinels.CutReplica()
				s.more()
				sentinels.FailOver()
			}
		},
		"away for an enforcer, for longer than the stream is": func(t *testing.T) (dialer, func(*stage)) {
			return single(servers.StartRedis(t).Addr()), func(s *stage) {
				s.network.Stall()
				s.more()
				s.network.Heal()
			}
		},
		"unreachable for everybody": func(t *testing.T) (dialer, func(*stage)) {
			network := servers.NewNetwork(t)
			straight := single(servers.StartRedis(t).Addr())
			through := func(t testing.TB, n *servers.Network) redis.UniversalClient {
				if n == nil {
					return straight(t, network)
				}
				return straight(t, n)
			}
			return through, func(s *stage) {
				for _, cut := range []func(){network.Cut, network.Stall} {
					cut()
					s.network.Cut()
					published := s.seqNow()
					s.eventually("verdicts went on falling", func() bool { return s.seqNow() > published+100 })
					s.network.Heal()
					network.Heal()
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dial, happens := fault(t)
			s, calm := newWatchedStage(t, dial, func(c *publish.Config) { c.StreamLength = 100 })
			for range 2 {
				s.more()
				happens(s)
				if strings.HasPrefix(name, "replaced") {
					break // there is one replica
				}
			}
			s.more()
			calm()
			s.inStep("at the end")
			s.tableEqualsTruth()
		})
	}
}

// more waits until a few hundred more verdicts are in Redis.
func (s *stage) more() {
	s.t.Helper()
	before := s.seqNow()
	s.eventually("verdicts flow", func() bool { return s.seqNow() > before+200 && !s.pubs[0].Stats().Failing })
}

func (s *stage) seqNow() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.published)
}

// TestRedisIsFull: what is refused waits, what ran out is freed, and when there is memory again all
// goes on.
func TestRedisIsFull(t *testing.T) {
	server := servers.StartRedis(t)
	var log testrun.Output
	s, calm := newWatchedStage(t, single(server.Addr()), func(c *publish.Config) { c.Logger = log.Logger() })
	s.more()
	set := func(maxmemory string) {
		if err := s.redis.ConfigSet(context.Background(), "maxmemory", maxmemory).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("1")
	s.eventually("the publisher says so", func() bool {
		stats := s.pubs[0].Stats()
		return stats.Failing && stats.Errors[ErrorMemory] > 10 && log.Has("raise Redis' maxmemory")
	})
	published := s.seqNow()
	s.eventually("verdicts go on falling", func() bool { return s.seqNow() > published+300 })
	set("0")
	s.more()
	calm()
	s.inStep("at the end")
	s.tableEqualsTruth()
	if n := log.Count("is interrupted"); n != 1 {
		t.Errorf("the outage was logged %d times, want once:\n%s", n, log.String())
	}
}

func TestAPublisherWithAWrongPasswordAtTheStartEnds(t *testing.T) {
	server := servers.StartRedis(t, "--requirepass", "right")
	for _, password := range []string{"", "wrong"} {
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: password, MaintNotificationsConfig: rig.NoNotices})
		defer client.Close()
		p, err := publish.New(publish.Config{Redis: client, Kafka: []string{"127.0.0.1:1"}, Partitions: 1, Logger: rig.Quiet()})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Run(t.Context()); !errors.Is(err, ErrAuth) {
			t.Errorf("password %q: the publisher's Run returns %v, want ErrAuth", password, err)
		}
	}
}

// TestThePasswordIsChanged while all runs, and then back: passwords are rotated.
func TestThePasswordIsChanged(t *testing.T) {
	server := servers.StartRedis(t)
	admin := rig.Dial(t, server.Addr())
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "tallygate", "on", ">first", "~*", "&*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	as := func(t testing.TB, network *servers.Network) redis.UniversalClient {
		o := &redis.Options{Addr: server.Addr(), Username: "tallygate", Password: "first", MaintNotificationsConfig: rig.NoNotices}
		if network != nil {
			o.Dialer = network.Dial
		}
		return closed(t, redis.NewClient(o))
	}
	var log testrun.Output
	s, calm := newWatchedStage(t, as, func(c *publish.Config) { c.Logger = log.Logger() })
	s.more()
	change := func(from, to string) {
		for _, args := range [][]any{{"ACL", "SETUSER", "tallygate", "<" + from, ">" + to}, {"CLIENT", "KILL", "USER", "tallygate"}} {
			if err := admin.Do(context.Background(), args...).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	change("first", "second")
	s.eventually("it is said", func() bool {
		return s.pubs[0].Stats().Errors[ErrorAuth] > 3 && log.Has("check the user, the password") && log.Has("WRONGPASS")
	})
	change("second", "first")
	s.more()
	calm()
	s.inStep("at the end")
	s.tableEqualsTruth()
	if strings.Contains(log.String(), "second") {
		t.Error("the log has a password")
	}
}
