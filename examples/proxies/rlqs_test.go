package proxies

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/envoylimit"
	"github.com/tallygate/tallygate/verdict"
)

// A user's searches are a bucket of Envoy's: what it lets through is reported, a verdict is pushed to it, and so is
// the verdict's end. It asks about no single request.
func TestQuotasOfEnvoy(t *testing.T) {
	path := program(t, "envoy")
	s := &strictRig{rig: &rig{t: t, proxy: servers.FreeAddr(t)}}
	s.app = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.app.Close)
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	table.Replace(0, nil)
	server, err := envoylimit.New(envoylimit.Config{Decider: table, Usage: envoylimit.Usage{Quotas: runsWith(t, "envoy-rlqs.yaml").Usage.Quotas, Events: s}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended, served, g := make(chan struct{}), make(chan error, 1), grpc.NewServer()
	server.RegisterQuotas(g, ended)
	go func() { served <- g.Serve(l) }()
	s.http, s.grpc = l.Addr().String(), l.Addr().String()
	t.Cleanup(sync.OnceFunc(func() {
		close(ended)
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}))
	dir := t.TempDir()
	s.start(dir, path, "-c", s.config(dir, "envoy-rlqs.yaml"), "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "error")

	search := func(user string) int { return s.ask(http.MethodGet, "/search", "X-User: "+user).status }
	sent := 0
	reported := func() (total event.Decimal) {
		for _, e := range s.reported() {
			if e.UID != "42" || e.API != "get.search" || e.ID != "" {
				t.Errorf("%+v is reported", e)
			}
			total += e.Cost
		}
		return total
	}
	for range 5 {
		if search("42") != http.StatusOK {
			t.Fatal("a search before any verdict is denied")
		}
		sent++
	}
	s.eventually("what passed is reported", func() bool { return reported() == event.Decimal(sent)*event.One })
	now := event.FromTime(time.Now())
	table.Apply(0, []verdict.Verdict{{Rule: "searches", Key: []event.Dim{{Name: "uid", Value: "42"}}, Action: verdict.ActBlock, APIs: []string{"get.search"},
		Since: now, Until: now + event.Hour, Seq: 1}})
	s.eventually("the verdict is pushed", func() bool { return search("42") == http.StatusTooManyRequests })
	if a := s.ask(http.MethodGet, "/orders", "X-User: 42"); a.status != http.StatusOK {
		t.Errorf("what has no bucket: %+v", a)
	}
	table.Apply(0, []verdict.Verdict{{Rule: "searches", Key: []event.Dim{{Name: "uid", Value: "42"}}, State: verdict.Clear, Seq: 2}})
	s.eventually("its end is pushed", func() bool { return search("42") == http.StatusOK })
	now = event.FromTime(time.Now())
	table.Apply(0, []verdict.Verdict{{Rule: "searches", Key: []event.Dim{{Name: "uid", Value: "42"}}, Action: verdict.ActBlock, APIs: []string{"get.search"},
		Since: now, Until: now + 3*event.Second, Seq: 3}})
	s.eventually("another verdict is pushed", func() bool { return search("42") == http.StatusTooManyRequests })
	s.eventually("it ends by itself", func() bool { return search("42") == http.StatusOK })
}
