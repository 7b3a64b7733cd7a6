package ask

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// An instance that forwards a request to the key's owner proves who it is, and names the caller. It
// signs the request with a key that it made at its start; the public half is in its user data as a
// member of the group. So an owner trusts exactly those that Kafka lets into the group, and each of
// these could own the partition itself. No secret has to be given to all instances, and it works
// the same with tokens, certificates or neither.

// peerHeader carries a peerClaim and its signature, both in base64, with a dot between them.
const peerHeader = "X-Tallygate-Peer"

// forwardedHeader marks a request that another instance forwarded. It is not forwarded again, so
// that two instances that disagree about an owner do not ask each other without end.
const forwardedHeader = "X-Tallygate-Forwarded"

const (
	peerContext = "tallygate peer 1\x00" // signed text begins with it, so no other signature fits
	peerClock   = time.Minute            // the largest difference of two instances' clocks
	maxPeerText = 8 << 10
)

const (
	maxCommandBody = 64 << 10 // of a request that gives a command
	commandWithin  = 20 * time.Second
)

// peerClaim is an instance's statement about a request that it forwards.
type peerClaim struct {
	Key    string `json:"key"` // its public key
	To     string `json:"to"`  // the address that the request goes to
	Method string `json:"method"`
	URI    []byte `json:"uri"`  // the SHA-256 of path and query
	Body   []byte `json:"body"` // that of the body
	At     int64  `json:"at"`   // milliseconds since the Unix epoch
	Name   string `json:"name"` // the actor's
	Role   string `json:"role"`
}

// peers is an instance's side of that.
type peers struct {
	private      ed25519.PrivateKey
	public       string
	transport    *http.Transport
	ask, command *http.Client // questions are answered from memory; commands wait for Kafka

	mu   sync.Mutex
	seen map[string]time.Time // signatures of changing requests, until these expire
}

func newPeers(cfg *Config) (*peers, error) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	p := &peers{private: private, public: base64.RawURLEncoding.EncodeToString(public), seen: map[string]time.Time{}}
	dial := &net.Dialer{Timeout: 5 * time.Second}
	p.transport = &http.Transport{
		DialContext: cfg.Dial,
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			d := tls.Dialer{NetDialer: dial}
			if cfg.PeerTLS != nil {
				var err error
				if d.Config, err = cfg.PeerTLS(); err != nil {
					return nil, err
				}
			}
			return d.DialContext(ctx, network, addr)
		},
		IdleConnTimeout:     time.Minute,
		MaxIdleConnsPerHost: 16,
	}
	if cfg.Dial == nil {
		p.transport.DialContext = dial.DialContext
	}
	// An owner never redirects.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	p.ask = &http.Client{Timeout: 5 * time.Second, Transport: p.transport, CheckRedirect: stay}
	p.command = &http.Client{Timeout: commandWithin + 5*time.Second, Transport: p.transport, CheckRedirect: stay}
	return p, nil
}

// request makes a request to another instance on behalf of ctx's actor.
func (p *peers) request(ctx context.Context, method string, to Address, pathAndQuery string, body []byte) (*http.Request, error) {
	scheme := "http://"
	if to.TLS {
		scheme = "https://"
	}
	req, err := http.NewRequestWithContext(ctx, method, scheme+to.Addr+pathAndQuery, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	actor := ActorOf(ctx)
	claim, err := json.Marshal(peerClaim{
		Key: p.public, To: to.Addr, Method: method, URI: digest([]byte(req.URL.RequestURI())), Body: digest(body),
		At: time.Now().UnixMilli(), Name: actor.Name, Role: actor.Role,
	})
	if err != nil {
		return nil, err
	}
	signature := ed25519.Sign(p.private, append([]byte(peerContext), claim...))
	req.Header.Set(peerHeader, base64.RawURLEncoding.EncodeToString(claim)+"."+base64.RawURLEncoding.EncodeToString(signature))
	req.Header.Set(forwardedHeader, "1")
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

func digest(b []byte) []byte {
	sum := sha256.Sum256(b)
	return sum[:]
}

// parsePeer parses a header, and verifies its signature by the key that it names, whosever that is.
func parsePeer(text string) (c peerClaim, signature string, err error) {
	first, second, _ := strings.Cut(text, ".")
	claim, err := base64.RawURLEncoding.DecodeString(first)
	sig, sigErr := base64.RawURLEncoding.DecodeString(second)
	if err = errors.Join(err, sigErr); err != nil || len(text) > maxPeerText {
		return c, "", errors.New("its signature is malformed")
	}
	if err := json.Unmarshal(claim, &c); err != nil {
		return c, "", errors.New("its claims are not readable")
	}
	key, err := base64.RawURLEncoding.DecodeString(c.Key)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return c, "", errors.New("its key is malformed")
	}
	if !ed25519.Verify(key, append([]byte(peerContext), claim...), sig) {
		return c, "", errors.New("its signature is wrong")
	}
	return c, string(sig), nil
}

// first notes a signature, and reports whether it is new. The signature was verified before, so
// that only members of the group add any.
func (p *peers) first(signature string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if _, again := p.seen[signature]; again {
		return false
	}
	for s, at := range p.seen {
		if now.Sub(at) > 2*peerClock {
			delete(p.seen, s)
		}
	}
	p.seen[signature] = now
	return true
}
