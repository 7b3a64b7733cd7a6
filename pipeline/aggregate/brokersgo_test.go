package aggregate

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tallygate/tallygate/internal/servers"
)

// cutting is a network in which brokers die: their connections break, and no other is opened.
type cutting struct {
	mu    sync.Mutex
	dead  string // the address of the one that is dead
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

// kill lets a broker die; "" brings the one that is dead back.
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

// Each of three brokers dies and comes back, and others lead and coordinate meanwhile, while two
// members count, and are asked. Nothing is lost or doubled; and the race detector sees what we,
// goka and sarama do with connections that end.
func TestBrokersComeAndGo(t *testing.T) {
	t.Parallel()
	rng := testSeed(t)
	k, err := kfake.NewCluster(kfake.Ports(servers.FreePorts(t, 3)...), kfake.GroupMinSessionTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	r := newRig(t, k.ListenAddrs())
	own := &cutting{conns: map[string][]net.Conn{}} // nobody is dead to the rig's producer
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
		pause(rng, 300) // its connections are gone before anybody says so
		if err := k.RemoveNode(int32(id)); err != nil {
			t.Fatal(err)
		}
		own.hangUp(addr) // kfake leaves them open, and a broker that is gone leads nothing
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

// sendOver gives the rig a producer over this network that tries until brokers are back, and whose
// repeats Kafka takes once.
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

// askOwners lets members ask who owns what, whatever comes of it.
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
