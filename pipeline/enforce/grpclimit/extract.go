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

// Metadata returns the value of a metadata key; several are httplimit.Ambiguous, and the call is
// refused. Make sure that clients cannot choose it.
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

// FirstMetadata is Metadata for proxies that put their value first: it returns the first of
// several.
func FirstMetadata(name string) func(context.Context) string {
	return func(ctx context.Context) string {
		if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
			return values[0]
		}
		return ""
	}
}

// LastMetadata is Metadata for proxies that put their value last: it returns the last of several.
func LastMetadata(name string) func(context.Context) string {
	return func(ctx context.Context) string {
		if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
			return values[len(values)-1]
		}
		return ""
	}
}

// PeerIP returns the address of the connection's peer. Behind a proxy use ClientIP: the peer is the
// proxy, all clients share that key, and a verdict on it denies everyone.
func PeerIP(ctx context.Context) string {
	host, _ := peerHost(ctx)
	return host
}

// ClientIP is httplimit.ClientIP for calls: the connection's peer, or, when that is one of these
// proxies, the right-most address in the metadata x-forwarded-for that is not a proxy. Without one
// it is absent, and that is logged once.
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

// peerHost returns the connection's peer; ok is false when it has no address.
func peerHost(ctx context.Context) (host string, ok bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", false
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	return host, err == nil
}
