package grpclimit_test

import (
	"context"

	"google.golang.org/grpc"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/grpclimit"
)

// A server whose callers are known by what an earlier interceptor put into the context.
func Example() {
	type userKey struct{}
	table, err := enforce.NewTable(enforce.Config{}) // kept in step by a blocklist.Feed
	if err != nil {
		panic(err)
	}
	limit, err := grpclimit.New(table, grpclimit.Options{
		UID: func(ctx context.Context) string { user, _ := ctx.Value(userKey{}).(string); return user },
		IP:  grpclimit.PeerIP,
	})
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor( /* authentication, */ limit.Unary),
		grpc.ChainStreamInterceptor(limit.Stream),
	)
	server.Stop()
}
