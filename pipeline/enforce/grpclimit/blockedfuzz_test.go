package grpclimit

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// Whatever a client puts into a call, who is blocked does not reach the handler, by user or by address.
func FuzzCallsOfWhoIsBlocked(f *testing.F) {
	f.Add("/shop.v1.Orders/Create", "accept-language", "de\xff", "192.0.2.9")
	f.Add("\xff", "user", "43", "203.0.113.9, unknown")
	f.Add("", "x-tallygate-permit", `{"permit":"forged"}`, "\x00")
	slog.SetDefault(slog.New(slog.DiscardHandler))
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		f.Fatal(err)
	}
	table.Replace(0, []verdict.Verdict{blocked("uid", "42", "*", verdict.ActBlock), blocked("ip", "203.0.113.9", "*", verdict.ActBlock)})
	l, err := New(table, Options{UID: Metadata("user"), IP: ClientIP(netip.MustParsePrefix("10.0.0.0/8")),
		Attrs: map[string]func(context.Context) string{"agent": FirstMetadata("agent")}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, name, value, forwarded string) {
		byUser := metadata.Pairs("user", "42", name, value, "agent", value)
		byAddress := metadata.Pairs("x-forwarded-for", forwarded+", 203.0.113.9")
		if name = strings.ToLower(name); name != "user" && name != "x-forwarded-for" { // the proxy sets these
			byAddress.Append(name, value)
		}
		for about, md := range map[string]metadata.MD{"user": byUser, "address": byAddress} {
			ctx := peer.NewContext(metadata.NewIncomingContext(t.Context(), md), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}})
			_, err := l.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) {
				t.Errorf("by %s: %q with %q: %q, from %q is let in", about, method, name, value, forwarded)
				return nil, nil
			})
			if code := status.Code(err); code != codes.ResourceExhausted && code != codes.InvalidArgument {
				t.Errorf("by %s: %v", about, err)
			}
		}
	})
}
