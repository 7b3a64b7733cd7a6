package topics

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
)

// brokenDialer is the network of one client, in which brokers fail or hang.
type brokenDialer struct {
	mu    sync.Mutex
	dead  map[string]bool // refuse connections, and lose those they have
	hung  map[string]bool // connections stay open, and nothing comes back
	conns map[string][]*brokenConn

	patience int // if not 0: so many refused connections later, a dead broker is back
}

type brokenConn struct {
	net.Conn
	hung func() bool
}

func (d *brokenDialer) Dial(network, addr string) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead[addr] {
		if d.patience > 0 {
			if d.patience--; d.patience == 0 {
				delete(d.dead, addr)
			}
		}
		return nil, &net.OpError{Op: "dial", Net: network, Err: net.ErrClosed}
	}
	c, err := net.Dial(network, addr)
	if err != nil {
		return nil, err
	}
	b := &brokenConn{c, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.hung[addr]
	}}
	d.conns[addr] = append(d.conns[addr], b)
	return b, nil
}

// Write swallows what is sent to a broker that hangs: its answer never comes.
func (c *brokenConn) Write(p []byte) (int, error) {
	if c.hung() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (d *brokenDialer) kill(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead[addr] = true
	for _, c := range d.conns[addr] {
		_ = c.Close()
	}
}

func (d *brokenDialer) hang(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hung[addr] = true
}

// brokenClient is a client of three brokers that it has talked to.
func brokenClient(t *testing.T) (*brokenDialer, sarama.Client, cluster) {
	t.Helper()
	k, err := kfake.NewCluster(kfake.NumBrokers(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	c := cluster{k.ListenAddrs(), "tg"}
	if _, err := Ensure(t.Context(), c.addrs, saramaConfig(), Config{Prefix: c.prefix, Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	d := &brokenDialer{dead: map[string]bool{}, hung: map[string]bool{}, conns: map[string][]*brokenConn{}}
	conf := saramaConfig()
	conf.Net.Proxy.Enable, conf.Net.Proxy.Dialer = true, d
	conf.Net.ReadTimeout = time.Minute // whoever waits for a broker that hangs takes this long
	client, err := sarama.NewClient(c.addrs, conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	for _, b := range client.Brokers() {
		if err := b.Open(conf); err != nil {
			t.Fatal(err)
		}
		if ok, err := b.Connected(); !ok {
			t.Fatal(err)
		}
	}
	if _, err := client.Controller(); err != nil {
		t.Fatal(err)
	}
	return d, client, c
}

// Whichever of three brokers fails or hangs, even the cached controller, the other two answer which
// topics there are, and at once.
func TestAnyLivingBrokerTellsTheTopics(t *testing.T) {
	for _, fault := range []string{"fails", "hangs"} {
		t.Run(fault, func(t *testing.T) {
			for i := range 3 {
				d, client, c := brokenClient(t)
				victim := c.addrs[i]
				if fault == "fails" {
					d.kill(victim)
				} else {
					d.hang(victim)
				}
				began := time.Now()
				have, err := Look(client, c.prefix)
				if err != nil {
					t.Fatalf("broker %d of 3 %s: %v", i+1, fault, err)
				}
				if len(have) != len(NamesOf(c.prefix).All()) {
					t.Errorf("broker %d of 3 %s: %d topics", i+1, fault, len(have))
				}
				settings, err := settingsOf(client, NamesOf(c.prefix).All())
				if err != nil || len(settings) != len(have) {
					t.Errorf("broker %d of 3 %s: settings of %d topics, %v", i+1, fault, len(settings), err)
				}
				if took := time.Since(began); took >= client.Config().Net.ReadTimeout {
					t.Errorf("broker %d of 3 %s: the answer took %v: the hung one was waited for", i+1, fault, took)
				}
			}
		})
	}
}

func TestNoLivingBrokerIsAnErrorThatNamesThem(t *testing.T) {
	d, client, c := brokenClient(t)
	for _, addr := range c.addrs {
		d.kill(addr)
	}
	_, err := Look(client, c.prefix)
	if err == nil || !strings.Contains(err.Error(), c.addrs[0]) {
		t.Fatalf("no broker is left: %v", err)
	}
}

// A controller that fails before the first topic is created does not prevent their creation: the
// next controller is asked.
func TestTopicsAreCreatedAfterTheControllerFailed(t *testing.T) {
	d, client, c := brokenClient(t)
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		t.Fatal(err)
	}
	cached, err := client.Controller()
	if err != nil {
		t.Fatal(err)
	}
	e := &ensurer{cfg: Config{Prefix: c.prefix}.withDefaults(), names: NamesOf(c.prefix), addrs: c.addrs, conf: client.Config(), client: client, admin: admin}
	d.kill(cached.Addr())
	d.patience = 3 // kfake elects no other, so the same one comes back
	if err := e.createOne(t.Context(), "tg.more", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}); err != nil {
		t.Fatal(err)
	}
	if d.dead[cached.Addr()] {
		t.Error("the controller was never asked again")
	}
}
