package aggregator

import (
	"context"
	"net/http"
	"testing"

	"github.com/tallygate/tallygate/internal/run/devstack"
)

// Where a proxy on the same machine takes what others send, they name the address that --advertise
// says.
func TestOthersAskLoopbackByTheAdvertisedName(t *testing.T) {
	t.Parallel()
	kafka, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	p := began(t, kafka.Kafka, "advertised", nil, "--advertise", "aggregator-1.example:18081")
	for host, want := range map[string]int{"aggregator-1.example:18081": http.StatusOK, "aggregator-2.example:18081": http.StatusForbidden} {
		if got, said := p.ask("", http.MethodPost, "/v1/commands", block("1"), func(r *http.Request) { r.Host = host }); got != want {
			t.Errorf("as %s: %d %s, want %d", host, got, said, want)
		}
	}
}
