package enforcer

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/run/redisconn"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

// Presence announces the program in Redis.
type Presence struct {
	Name string // "" is the host and the process
	URL  string // where its HTTP API is; "": nobody is told
	None bool   // it is not announced
}

// presence makes what announces the program; nil if nothing does.
func (e *Program) presence(table *enforce.Table, feed *blocklist.Feed, server *decision.Server) (*presence.Announcer, error) {
	if e.Presence.None {
		return nil, nil
	}
	describe := presence.Describe(table, feed)
	a, err := presence.New(presence.Config{Redis: e.Redis, Prefix: e.Prefix, Logger: e.Log, Beat: func() presence.Beat {
		b := describe()
		b.Kind, b.Name, b.URL, b.Version = presence.DecisionServer, cmp.Or(e.Presence.Name, b.Name), e.Presence.URL, ops.Version()
		b.Checks, b.Denied = server.Checks()
		return b
	}})
	if err != nil {
		return nil, err
	}
	return a, redisconn.CountErrors(e.Registry, "tallygate_presence_errors_total", "Failed attempts to announce this enforcer in Redis.", a.Errors)
}

// presenceOptions adds the options that say how the program is announced.
func presenceOptions(o *ops.Options, l *listeners) (instance *string, none *bool) {
	instance = o.String("instance-id", "", "`name` of this instance in its log, and among the enforcers that announce themselves (default the host's name and the process)")
	l.advertise = o.String("advertise", "", "`HOST:PORT` at which operators' tools reach --listen (default that address, unless it is all interfaces or a Unix socket)")
	none = o.Bool("no-presence", false, "don't announce this enforcer in Redis")
	return instance, none
}

// reached returns where others reach the HTTP API; "" if nobody knows.
func reached(advertise string, l net.Listener, tls bool) (string, error) {
	scheme := "http://"
	if tls {
		scheme = "https://"
	}
	if advertise != "" {
		host, port, err := net.SplitHostPort(advertise)
		if n, portErr := strconv.Atoi(port); err == nil && (host == "" || portErr != nil || n < 1 || n > 65535) {
			err = errors.New("want a name or an address, and a port")
		}
		if err != nil {
			return "", fmt.Errorf("--advertise %q: %w", advertise, err)
		}
		return scheme + net.JoinHostPort(host, port), nil
	}
	at, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil || at.Addr().IsUnspecified() {
		return "", nil
	}
	return scheme + at.String(), nil
}
