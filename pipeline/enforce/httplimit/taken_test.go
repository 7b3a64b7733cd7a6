package httplimit_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// oneHeld grants everything, and notes what is held.
type oneHeld struct{ held, done atomic.Int64 }

func (o *oneHeld) Idle() bool { return false }

func (o *oneHeld) AdmitRequest(context.Context, enforce.Request) (enforce.Admission, error) {
	o.held.Add(1)
	return enforce.Admission{Decision: enforce.Decision{Allowed: true}, Held: o}, nil
}

func (o *oneHeld) Done(string) { o.held.Add(-1); o.done.Add(1) }
func (o *oneHeld) Cancel()     { o.held.Add(-1) }

// A websocket that its handler hands to a goroutine was held no longer once the handler had returned, so any
// number of them were open under a limit on what is under way.
func TestAConnectionThatIsTakenOverIsHeldUntilItIsClosed(t *testing.T) {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	permits := &oneHeld{}
	conns, returned := make(chan net.Conn, 1), make(chan struct{}, 1)
	limited := httplimit.Middleware(table, httplimit.Options{UID: httplimit.Header("X-User"), Admit: permits})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			if _, ok := conn.(interface{ CloseWrite() error }); !ok {
				t.Error("one direction of it cannot be closed alone")
			}
			if r.URL.Path == "/closed" {
				_ = conn.Close()
			}
			conns <- conn
		})).ServeHTTP(w, r)
		returned <- struct{}{}
	}))
	defer server.Close()
	for path, open := range map[string]bool{"/open": true, "/closed": false} {
		client, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		fmt.Fprintf(client, "GET %s HTTP/1.1\r\nHost: x\r\nX-User: 42\r\n\r\n", path)
		conn := <-conns
		<-returned
		if n := permits.held.Load(); open != (n == 1) {
			t.Errorf("%s: %d are held when the handler has returned", path, n)
		}
		if open { // both ends still talk
			if _, err := conn.Write([]byte("hello\n")); err != nil {
				t.Error(err)
			}
			if line, err := bufio.NewReader(client).ReadString('\n'); line != "hello\n" {
				t.Errorf("%q, %v", line, err)
			}
		}
		_ = conn.Close()
		testrun.Eventually(t, "nothing is held", func() bool { return permits.held.Load() == 0 })
	}
	if n := permits.done.Load(); n != 2 {
		t.Errorf("%d are done", n)
	}
}
