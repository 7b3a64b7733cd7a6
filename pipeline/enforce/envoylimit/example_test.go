package envoylimit_test

import (
	"fmt"

	"google.golang.org/grpc"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/envoylimit"
)

// A program of one's own answers Envoy, whose configuration calls the user's descriptor user_id.
func ExampleNew() {
	table, err := enforce.NewTable(enforce.Config{}) // a blocklist.Feed keeps it in step
	if err != nil {
		panic(err)
	}
	server, err := envoylimit.New(envoylimit.Config{Decider: table, Entries: map[string]string{"user_id": "uid"}})
	if err != nil {
		panic(err)
	}
	g := grpc.NewServer()
	server.Register(g)
	fmt.Println(len(g.GetServiceInfo()), "services")
	// Output: 2 services
}
