package e2e

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// gate is the network between one program and one server: a TCP proxy that can be cut, held up
// and slowed, and that knows Kafka's requests when it is told to, so that a test can act at a
// moment of the protocol. Clients in the test's own process use servers.Network instead, which says
// why there are two.
type gate struct {
	addr   string // where the program finds the server
	target string
	kafka  bool

	mu     sync.Mutex
	links  map[*link]bool
	cut    bool
	ended  bool
	flows  chan struct{} // closed while bytes may pass
	delay  time.Duration
	moment *moment   // awaited
	armed  []*moment // all that there were
	wg     sync.WaitGroup
}

// link is one connection of the program, and the gate's own to the server.
type link struct {
	client, server net.Conn

	mu   sync.Mutex
	held map[int32]*moment // answers that wait, by correlation id
}

// newGate listens. Nothing passes before lead.
func newGate(t *testing.T, kafka bool) *gate {
	t.Helper()
	l, err := net.Listen("tcp", servers.FreeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{addr: l.Addr().String(), kafka: kafka, links: map[*link]bool{}, flows: make(chan struct{}), cut: true}
	close(g.flows)
	g.wg.Go(func() { g.accept(l) })
	t.Cleanup(func() {
		_ = l.Close()
		g.Heal()
		g.mu.Lock()
		g.ended = true
		for _, m := range g.armed {
			m.drop()
		}
		g.mu.Unlock()
		g.Cut()
		g.wg.Wait()
	})
	return g
}

// lead opens the gate towards a server.
func (g *gate) lead(target string) *gate {
	g.target = target
	g.Heal()
	return g
}

func (g *gate) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return // closed
		}
		g.wg.Go(func() { g.connect(client) })
	}
}

func (g *gate) connect(client net.Conn) {
	if !g.pass() {
		_ = client.Close()
		return
	}
	server, err := net.DialTimeout("tcp", g.target, 5*time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	k := &link{client: client, server: server, held: map[int32]*moment{}}
	g.mu.Lock()
	if g.cut {
		k.close()
	}
	g.links[k] = true
	g.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { g.pump(k, client, server, g.request) })
	both.Go(func() { g.pump(k, server, client, g.answer) })
	both.Wait()
	g.mu.Lock()
	delete(g.links, k)
	g.mu.Unlock()
}

func (k *link) close() {
	_ = k.client.Close()
	_ = k.server.Close()
}

// pump carries bytes one way until either end closes: frame by frame if it is Kafka's protocol.
func (g *gate) pump(k *link, from io.Reader, to io.Writer, look func(k *link, frame []byte) (hold *moment)) {
	defer k.close()
	var buf []byte
	for {
		frame, err := g.read(from, &buf)
		if err != nil || !g.pass() {
			return
		}
		if g.kafka {
			if m := look(k, frame); m != nil && !m.hold() {
				return
			}
		}
		if _, err := to.Write(frame); err != nil {
			return
		}
	}
}

func (g *gate) read(from io.Reader, buf *[]byte) ([]byte, error) {
	if g.kafka {
		return readFrame(from, buf)
	}
	if *buf == nil {
		*buf = make([]byte, 32<<10)
	}
	n, err := from.Read(*buf)
	if n > 0 {
		err = nil
	}
	return (*buf)[:n], err
}

// pass waits while the gate is held up or slow, and reports whether it is open.
func (g *gate) pass() bool {
	g.mu.Lock()
	flows, delay := g.flows, g.delay
	g.mu.Unlock()
	<-flows
	time.Sleep(delay)
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.cut
}

// Cut breaks all connections and refuses new ones.
func (g *gate) Cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut = true
	for k := range g.links {
		k.close()
	}
}

// Stall lets nothing pass, and breaks nothing: what is on its way arrives after Heal.
func (g *gate) Stall() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flows = make(chan struct{})
}

// Slow makes each request, and each answer, take that much longer.
func (g *gate) Slow(by time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay = by
}

// Heal undoes Cut, Stall and Slow.
func (g *gate) Heal() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut, g.delay = g.ended, 0
	select {
	case <-g.flows:
	default:
		close(g.flows)
	}
}

// moment is a place in the conversation at which a test acts: the gate holds the request, or its
// answer, until the test says what becomes of it.
type moment struct {
	match func(q *kafkaRequest) bool
	after bool // the server has got it, and its answer is held
	nth   int  // how many that match pass before

	mu   sync.Mutex
	come bool

	hit     chan struct{} // closed when it has come
	decided chan bool
	once    sync.Once
}

// comes reports whether a request that matches is the one that was waited for: the first at any
// gate, behind nth others.
func (m *moment) comes() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.come:
		return false
	case m.nth > 0:
		m.nth--
		return false
	}
	m.come = true
	return true
}

// gates are one program's ways to the nodes of a server.
type gates []*gate

// addrs is where the program finds the server, HOST:PORT,….
func (gs gates) addrs() string {
	all := make([]string, len(gs))
	for i, g := range gs {
		all[i] = g.addr
	}
	return strings.Join(all, ",")
}

// arm waits for a moment at any of the gates, instead of any other.
func (gs gates) arm(m *moment) *moment {
	m.hit, m.decided = make(chan struct{}), make(chan bool, 1)
	for _, g := range gs {
		g.mu.Lock()
		g.moment, g.armed = m, append(g.armed, m)
		g.mu.Unlock()
	}
	return m
}

// disarm gives up waiting for a moment.
func (gs gates) disarm() {
	for _, g := range gs {
		g.mu.Lock()
		g.moment = nil
		g.mu.Unlock()
	}
}

// Heal ends what befell each of them.
func (gs gates) Heal() {
	for _, g := range gs {
		g.Heal()
	}
}

// hold is called by the gate when the moment has come.
func (m *moment) hold() (goesOn bool) {
	close(m.hit)
	return <-m.decided
}

// drop closes the connection instead of passing on what is held.
func (m *moment) drop() { m.once.Do(func() { m.decided <- false }) }

// release passes on what is held.
func (m *moment) release() { m.once.Do(func() { m.decided <- true }) }

// request looks at what the program sends.
func (g *gate) request(k *link, frame []byte) *moment {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.moment == nil {
		return nil
	}
	q, err := parseRequest(frame)
	if err != nil || !g.moment.match(q) {
		return nil
	}
	m := g.moment
	if !m.comes() {
		return nil
	}
	g.moment = nil
	if !m.after {
		return m
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held[q.correlation] = m
	return nil
}

// answer looks at what the server sends.
func (g *gate) answer(k *link, frame []byte) *moment {
	k.mu.Lock()
	defer k.mu.Unlock()
	id, err := correlationOf(frame)
	m := k.held[id]
	if err != nil || m == nil {
		return nil
	}
	delete(k.held, id)
	return m
}

var errFrame = errors.New("no frame of Kafka's")
