// Package ask answers what is asked of a member of the group over HTTP, and carries out commands.
//
// Whoever is asked answers: what lies in the partitions of others, it asks of these, which answer for themselves alone
// (forwardedHeader). The package sees its own member through the interfaces of Config, so that tests ask partitions
// without Kafka: see package asktest.
package ask

import (
	"context"
	"crypto/tls"
	"net"
)

// Config configures Answers. All but PeerTLS and Dial is required.
type Config struct {
	Instance Instance
	Rules    Rulebook
	Group    Group

	Name      string // of the instance, in the audit
	Advertise string // where others reach it; "" is nowhere

	PeerTLS func() (*tls.Config, error)                                       // for each connection to another instance; nil is the system's
	Dial    func(ctx context.Context, network, addr string) (net.Conn, error) // nil connects to the network
}

// Answers serves the HTTP API: its Serve methods are handlers, and who may call them is decided before (WithActor says
// who calls). They bound what they read, how long they take, and how many keys they look at. If another instance owns the key, it asks that one.
type Answers struct {
	*base
	*keys
	*commands
	*distribution
	*history
	*cluster
	*reads
}

// New makes the key by which other instances recognize this one, and connects to nothing.
func New(cfg Config) (*Answers, error) {
	peers, err := newPeers(&cfg)
	if err != nil {
		return nil, err
	}
	b := &base{
		instance: cfg.Instance, rules: cfg.Rules, group: cfg.Group, peers: peers,
		name: cfg.Name, advertise: cfg.Advertise,
	}
	return &Answers{
		base:         b,
		keys:         &keys{base: b, listing: make(chan struct{}, blockedAtOnce)},
		commands:     &commands{base: b},
		distribution: &distribution{base: b, walking: make(chan struct{}, 1)},
		history:      &history{base: b},
		cluster:      &cluster{base: b},
		reads:        &reads{base: b},
	}, nil
}

// PeerKey is the public key by which other instances recognize this one.
func (a *Answers) PeerKey() string { return a.peers.public }

// CloseIdleConnections closes the connections to other instances that nobody uses.
func (a *Answers) CloseIdleConnections() { a.peers.transport.CloseIdleConnections() }
