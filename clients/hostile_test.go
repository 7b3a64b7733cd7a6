package clients

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

const hostileRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: hostile}
spec:
  rules:
    - {name: all, public: all, match: {api: "*"}, limit: 3, per: 1h, window: tumbling, then: {block: 1h, apis: ["*"]}}
`

// Whatever a blocked user's client sends, the user is not let in: in each place that a client controls there
// are random bytes, or more of them than anybody takes. Python's middleware once copied Accept-Language into
// its question: above 40 KB the decision server refused that, and the middleware was open.
func TestBlockedUsersAreNeverLetIn(t *testing.T) {
	for name, command := range map[string]func(t *testing.T, in installation, port string) []string{
		"ASGI": func(t *testing.T, in installation, port string) []string {
			return []string{python(t), "-c", asgiApp, in.decision, port}
		},
		"WSGI": func(t *testing.T, in installation, port string) []string {
			return []string{python(t), "-c", wsgiApp, in.decision, port}
		},
		"Express": func(t *testing.T, in installation, port string) []string {
			return nodeApp(t, expressApp, in, port)
		},
		"Fastify": func(t *testing.T, in installation, port string) []string {
			return nodeApp(t, fastifyApp, in, port)
		},
		"Spring Boot": func(t *testing.T, in installation, port string) []string {
			return append(java(t), "shop.Shop", "--server.address=127.0.0.1", "--server.port="+port, "--tallygate.timeout=30s", "--tallygate.url="+in.decision,
				"--tallygate.ip=true", "--tallygate.kafka.brokers="+in.brokers, "--tallygate.kafka.topic="+in.prefix+".events")
		},
		"Go": func(t *testing.T, in installation, port string) []string {
			return slices.Concat([]string{build(t, "orders")}, in.parts(t), []string{"-listen", "127.0.0.1:" + port})
		},
	} {
		t.Run(name, func(t *testing.T) {
			servers.Nightly(t, "clients")
			in, listen := install(t, hostileRules), servers.FreeAddr(t)
			_, port, _ := strings.Cut(listen, ":")
			args := command(t, in, port)
			launch(t, false, exec.Command(args[0], args[1:]...))
			exceed(t, in)
			testrun.Eventually(t, "user 42 is blocked", func() bool {
				return ask(t, http.MethodGet, "http://"+listen+"/search", "X-User", "42").StatusCode == http.StatusTooManyRequests
			})
			seed := testrun.Seed(t)
			draw := rand.New(rand.NewPCG(seed, 0))
			refused := 0
			for i := range 200 {
				request := hostile(draw)
				status := statusOf(t, listen, request)
				switch {
				case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
					refused++
				case status == 0 || status == http.StatusBadRequest || status == http.StatusRequestHeaderFieldsTooLarge || status == http.StatusRequestURITooLong ||
					status == http.StatusNotImplemented: // by the server, before any middleware
				default:
					t.Fatalf("request %d gets %d:\n%.3000q", i, status, request)
				}
			}
			if refused == 0 { // servers refuse most of them, each others
				t.Error("none of 200 requests came as far as the middleware")
			}
			if got := ask(t, http.MethodGet, "http://"+listen+"/search", "X-User", "42").StatusCode; got != http.StatusTooManyRequests {
				t.Errorf("afterwards the user gets %d", got)
			}
		})
	}
}

// Apps that take each request, and wait for the decision server as long as a busy machine needs.
const (
	asgiApp = `
import sys, uvicorn
from tallygate import AsyncClient, TallygateASGI, client_ip, header
async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"let in"})
app = TallygateASGI(app, AsyncClient(sys.argv[1], timeout=30), uid=header("X-User"), ip=client_ip("127.0.0.1"), attrs={"agent": header("User-Agent")})
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
`
	wsgiApp = `
import sys
from werkzeug.serving import run_simple
from tallygate import Client, TallygateWSGI, client_ip, header
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"let in"]
app = TallygateWSGI(app, Client(sys.argv[1], timeout=30), uid=header("X-User"), ip=client_ip("127.0.0.1"), attrs={"agent": header("User-Agent")})
run_simple("127.0.0.1", int(sys.argv[2]), app, threaded=True)
`
	expressApp = `
import express from 'express';
import { Client, header, tallygateExpress } from 'tallygate';
const [, , url, port] = process.argv, app = express();
app.use(tallygateExpress({ client: new Client(url, { timeout: 30_000 }), uid: header('X-User'), ip: (r) => r.ip, attrs: { agent: header('User-Agent') } }));
app.use((request, response) => response.send('let in'));
app.listen(Number(port), '127.0.0.1');
`
	fastifyApp = `
import Fastify from 'fastify';
import { Client, header, tallygateFastify } from 'tallygate';
const [, , url, port] = process.argv, app = Fastify();
app.register(tallygateFastify, { client: new Client(url, { timeout: 30_000 }), uid: header('X-User'), ip: (r) => r.ip, attrs: { agent: header('User-Agent') } });
app.all('/*', async () => 'let in');
app.listen({ port: Number(port), host: '127.0.0.1' });
`
)

func nodeApp(t *testing.T, program string, in installation, port string) []string {
	t.Helper()
	file := filepath.Join(nodeProject(t), "app.mjs")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"node", file, in.decision, port}
}

// exceed has user 42 exceed the limit.
func exceed(t *testing.T, in installation) {
	t.Helper()
	conn, err := kafka.DialLeader(t.Context(), "tcp", servers.Kafka(t)[0], in.prefix+".events", int(event.Partition([]byte("42"), installed)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for range 4 {
		if _, err := conn.WriteMessages(kafka.Message{Key: []byte("42"), Value: []byte(`{"uid":"42","api":"a"}`)}); err != nil {
			t.Fatal(err)
		}
	}
}

// hostile is a request of user 42, whom the proxy in front has named, as any client can make it.
func hostile(draw *rand.Rand) []byte {
	var out bytes.Buffer
	methods := []string{"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"}
	fmt.Fprintf(&out, "%s /%s HTTP/1.1\r\nHost: shop\r\nX-User: 42\r\nConnection: close\r\n", methods[draw.IntN(len(methods))], noise(draw, '!'))
	names := []string{"Accept-Language", "User-Agent", "X-Forwarded-For", "Cookie", "Referer", "Accept", "X-Tallygate-Uid", "X-Tallygate-Api", "X-Tallygate-Permit",
		"Forwarded", "X-Forwarded-Uri", "X-Forwarded-Method", "traceparent", "Origin", "Content-Type", "X-HTTP-Method-Override", "Authorization"}
	for range 1 + draw.IntN(4) {
		fmt.Fprintf(&out, "%s: %s\r\n", names[draw.IntN(len(names))], noise(draw, ' '))
	}
	out.WriteString("\r\n")
	return out.Bytes()
}

// noise are bytes from a least one on: few, or many; of any kind, of text, or of one byte.
func noise(draw *rand.Rand, least byte) []byte {
	sizes := []int{0, 3, 40, 300, 3_000, 7_000, 15_000, 30_000, 41_000, 60_000}
	size, kind, one := sizes[draw.IntN(len(sizes))], draw.IntN(4), least+byte(draw.IntN(256-int(least)))
	out := make([]byte, size)
	for i := range out {
		switch kind {
		case 0:
			out[i] = least + byte(draw.IntN(256-int(least)))
		case 1:
			out[i] = "abc-,;=%/.*09"[draw.IntN(13)]
		case 2:
			out[i] = one
		default:
			out[i] = "de-CH,de;q=0.9,"[i%15]
		}
	}
	return out
}

// statusOf sends a request as it stands. The status is 0 where the server closes the connection.
func statusOf(t *testing.T, addr string, request []byte) (status int) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := conn.Write(request); err != nil {
		return 0 // it was refused before its end
	}
	line, _ := bufio.NewReader(conn).ReadString('\n')
	_, _ = fmt.Sscanf(line, "HTTP/1.1 %d", &status)
	return status
}
