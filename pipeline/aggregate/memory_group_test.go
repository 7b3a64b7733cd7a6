package aggregate

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

// pipes are a network in memory, by address. Who waits for it waits in the bubble.
type pipes struct {
	mu sync.Mutex
	at map[string]*pipe
}

// pipe is a listener.
type pipe struct {
	addr  net.Addr
	conns chan net.Conn
	ended chan struct{}
	end   func()
}

func (n *pipes) listen() net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := &pipe{addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, byte(len(n.at)+1)), Port: 80}, conns: make(chan net.Conn), ended: make(chan struct{})}
	p.end = sync.OnceFunc(func() { close(p.ended) })
	n.at[p.addr.String()] = p
	return p
}

func (n *pipes) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	p := n.at[addr]
	n.mu.Unlock()
	if p == nil {
		return nil, fmt.Errorf("dial %s: nobody is there", addr)
	}
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.ended:
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipe) Close() error   { p.end(); return nil }
func (p *pipe) Addr() net.Addr { return p.addr }

// serve starts a server, whose Client reaches it, for the rest of the test.
func (r *rig) serve(h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	if r.memory != nil {
		_ = s.Listener.Close()
		s.Listener = r.network.listen()
	}
	s.Start()
	if r.memory != nil {
		s.Client().Transport.(*http.Transport).DialContext = r.network.dial
	}
	r.t.Cleanup(s.Close)
	return s
}

// meet tells members in memory who is in the group, and owns what, as Kafka's coordinator would.
func meet(ms ...*member) {
	all := &sarama.GroupDescription{Members: map[string]*sarama.GroupMemberDescription{}}
	for i, m := range ms {
		is := kmsg.ConsumerMemberMetadata{UserData: topics.Member{Advertise: m.cfg.Advertise, Key: m.PeerKey(), Packs: true}.UserData()}
		has := kmsg.ConsumerMemberAssignment{Topics: []kmsg.ConsumerMemberAssignmentTopic{{Topic: m.names.Events, Partitions: m.share}}}
		all.Members[fmt.Sprint(i)] = &sarama.GroupMemberDescription{
			ClientId: m.cfg.Prefix + defaultClient, ClientHost: "/192.0.2.9", MemberMetadata: is.AppendTo(nil), MemberAssignment: has.AppendTo(nil),
		}
	}
	for _, m := range ms {
		m.members.mu.Lock()
		m.members.at, m.members.groups = time.Now().AddDate(100, 0, 0), []*sarama.GroupDescription{all} // nobody else is asked
		m.members.last.Store(&groupSeen{m.members.at, m.members.groups})
		m.members.mu.Unlock()
	}
}
