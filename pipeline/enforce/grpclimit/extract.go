package grpclimit

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// Metadata returns what the client sent under a name; several values are httplimit.Ambiguous, and such a call is refused. Take care that the
// client could not choose it.
func Metadata(name string) func(context.Context) string {
	return func(ctx context.Context) string {
		switch values := metadata.ValueFromIncomingContext(ctx, name); len(values) {
		case 0:
			return ""
		case 1:
			return values[0]
		default:
			return httplimit.Ambiguous
		}
	}
}

// FirstMetadata is Metadata where of several values the first is right, since your proxies put theirs in front.
func FirstMetadata(name string) func(context.Context) string {
	return func(ctx context.Context) string {
		if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
			return values[0]
		}
		return ""
	}
}

// LastMetadata is Metadata where of several values the last is right, since your proxies put theirs behind.
func LastMetadata(name string) func(context.Context) string {
	return func(ctx context.Context) string {
		if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
			return values[len(values)-1]
		}
		return ""
	}
}

// PeerIP is the address of the connection's other end: the client's, if there is no proxy in between. Behind one it is the proxy's, a key
// that all clients share, and a verdict on it denies everyone: use ClientIP there.
func PeerIP(ctx context.Context) string {
	host, _ := peerHost(ctx)
	return host
}

// ClientIP is httplimit.ClientIP for calls: the connection's other end, or, when that is one of these proxies, the right-most address of
// the metadata x-forwarded-for that is none of them. When they name nobody else it is absent, which is said once in the log.
func ClientIP(proxies ...netip.Prefix) func(context.Context) string {
	known := httplimit.NewProxies(proxies...)
	return func(ctx context.Context) string {
		var hops []string
		if len(proxies) > 0 {
			for _, value := range metadata.ValueFromIncomingContext(ctx, "x-forwarded-for") {
				hops = append(hops, strings.Split(value, ",")...)
			}
		}
		if host, ok := peerHost(ctx); ok { // a Unix socket's is none: it is a proxy's
			hops = append(hops, host)
		}
		return known.Client(hops)
	}
}

// peerHost is the connection's other end; ok is false when it has no address.
func peerHost(ctx context.Context) (host string, ok bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", false
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	return host, err == nil
}
