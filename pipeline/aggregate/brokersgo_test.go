package aggregate

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// cutting is a network in which brokers fail: their connections break, and no other is opened.
type cutting struct {
	mu    sync.Mutex
	dead  string // the address of the failed broker
	conns map[string][]net.Conn
}

func (c *cutting) Dial(network, addr string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if addr == c.dead {
		return nil, &net.OpError{Op: "dial", Net: network, Err: net.ErrClosed}
	}
	conn, err := net.Dial(network, addr)
	if err == nil {
		c.conns[addr] = append(c.conns[addr], conn)
	}
	return conn, err
}

// kill makes a broker fail; "" brings the failed one back.
func (c *cutting) kill(addr string) {
	c.mu.Lock()
	c.dead = addr
	c.mu.Unlock()
	c.hangUp(addr)
}

// hangUp breaks the connections to a broker.
func (c *cutting) hangUp(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns[addr] {
		_ = conn.Close()
	}
	delete(c.conns, addr)
}

// Each of three brokers fails and comes back, and others lead and coordinate meanwhile, while two
// members count and answer. Nothing is lost or doubled, and the race detector checks how this
// package, goka and sarama use connections that end.
func TestBrokersComeAndGo(t *testing.T) {
	t.Parallel()
	servers.Embedded(t)
	rng := chance(t)
	k, err := kfake.NewCluster(kfake.Ports(servers.FreePorts(t, 3)...), kfake.GroupMinSessionTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	r := newRig(t, k.ListenAddrs())
	own := &cutting{conns: map[string][]net.Conn{}} // the rig's producer reaches every broker
	r.sendOver(own)
	set := compile(t, byIPAndUID)
	cut := &cutting{conns: map[string][]net.Conn{}}
	over := func(c *Config) {
		c.BrokerTime = "create"
		c.Kafka = func(s *sarama.Config) { s.Net.Proxy.Enable, s.Net.Proxy.Dialer = true, cut }
	}
	a, b := r.start(set, over), r.start(set, over)
	r.ready(a, b)
	l := r.load()
	for id, addr := range k.ListenAddrs() {
		cut.kill(addr)
		l.emit(50)
		pause(rng, 300) // its connections break before its successor is elected
		if err := k.RemoveNode(int32(id)); err != nil {
			t.Fatal(err)
		}
		own.hangUp(addr) // kfake leaves them open, but a failed broker leads nothing
		k.RehashCoordinators()
		askOwners(a, b)
		l.emit(50)
		pause(rng, 1500)
		if _, _, err := k.AddNode(int32(id), portOf(t, addr)); err != nil {
			t.Fatal(err)
		}
		k.RehashCoordinators()
		cut.kill("")
		askOwners(a, b)
		pause(rng, 1000)
	}
	l.counted(a, b)
}

// sendOver gives the rig a producer over this network. It retries until brokers are back, and Kafka
// drops its repeats.
func (r *rig) sendOver(network *cutting) {
	r.t.Helper()
	cfg := *r.client.Config()
	cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests = true, 1
	cfg.Producer.Retry.Max, cfg.Producer.Retry.Backoff = 600, 50*time.Millisecond
	cfg.Net.Proxy.Enable, cfg.Net.Proxy.Dialer = true, network
	patient, err := sarama.NewSyncProducer(r.brokers, &cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.send.Close()
	r.send = patient
}

func pause(rng *rand.Rand, most int) { time.Sleep(time.Duration(rng.IntN(most)) * time.Millisecond) }

// askOwners makes members ask for owners, and ignores the answers.
func askOwners(ms ...*member) {
	for _, m := range ms {
		go func() { _, _ = m.owners() }()
	}
}

func portOf(t *testing.T, addr string) int {
	t.Helper()
	to, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return to.Port
}
