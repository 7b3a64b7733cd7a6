package e2e

import (
	"fmt"
	"hash/crc32"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/verdict"
)

// The clients in other languages lead to the same verdict, the same entry in Redis and the
// same 429 as our own. They need Java, Maven and Python.
func TestForeignClients(t *testing.T) {
	servers.Nightly(t, "clients")
	clients := filepath.Join("..", "..", "..", "clients")
	java := []string{"java", "-cp", script(t, "java.sh"), "events.Emit"}
	python := []string{script(t, "python.sh"), filepath.Join(clients, "emit.py")}
	r := newRig(t, searches)
	p := r.aggregator("a").Start().Ready()
	server := r.enforcer()
	for _, c := range []struct {
		name    string
		command []string
	}{
		{"java", java},
		{"python-murmur2", python},
		{"python-crc32", append(python[:len(python):len(python)], "--default-partitioner")},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := r.in(t)
			over, below := r.misplaced(c.name), c.name+" below"
			emitByClient(r, c.command, 5, over)
			emitByClient(r, c.command, 4, below)
			r.caughtUp()
			r.foreignVerdict(server, over)
			counted := map[string]event.Decimal{}
			for _, uid := range []string{over, below} {
				reply, err := explainKey(p, uidKeys(uid)[0])
				if err != nil {
					t.Fatal(err)
				}
				counted[uid] = reply.list[0].Count
			}
			if counted[over] != 5*event.One || counted[below] != 4*event.One {
				t.Errorf("counted %v", counted)
			}
			if a := check(t, server, "search.query", []string{below})[0]; !a.Allowed {
				t.Errorf("%s is denied after 4 of 5", below)
			}
		})
	}
}

// misplaced is a uid that crc32 puts where it doesn't belong.
func (r *rig) misplaced(name string) string {
	for i := 0; ; i++ {
		uid := fmt.Sprintf("%s %d", name, i)
		if int32(crc32.ChecksumIEEE([]byte(uid))%uint32(r.partitions)) != event.Partition([]byte(uid), r.partitions) {
			return uid
		}
	}
}

func emitByClient(r *rig, command []string, n int, uid string) {
	t := r.t
	t.Helper()
	args := slices.Concat(command, []string{strings.Join(r.brokers, ","), r.names.Events, fmt.Sprint(n), uid})
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	t.Logf("%s: %s", uid, strings.TrimSpace(string(out)))
}

// foreignVerdict finds a uid's verdict in the topic, the same in Redis, and its 429.
func (r *rig) foreignVerdict(server *Process, uid string) {
	t := r.t
	t.Helper()
	key := uidKeys(uid)[0] + "|search-combined"
	var topic published
	eventually(t, uid+" has a verdict", func() bool {
		topic = readVerdicts(r)
		return topic.last[key] != nil
	})
	v, err := verdict.Parse(topic.last[key])
	if err != nil || v.State != verdict.Block || v.Count != 5*event.One || v.Limit != 5*event.One {
		t.Errorf("verdict %s: %v", topic.last[key], err)
	}
	t.Logf("verdict: %s", topic.last[key])
	var text string
	eventually(t, "Redis has it", func() bool {
		text, _ = r.redis.HGet(t.Context(), r.shardKey("verdicts"), key).Result()
		return text != ""
	})
	if text != string(topic.last[key]) {
		t.Errorf("Redis has %s", text)
	}
	var resp *http.Response
	eventually(t, uid+" is denied", func() bool {
		resp = ask(t, server.url("/v1/forward-auth"), map[string]string{"X-Tallygate-Uid": uid, "X-Tallygate-Api": "search.query"})
		return resp.StatusCode == http.StatusTooManyRequests
	})
	denied(t, resp, "searches")
	t.Logf("%d, Retry-After: %s", resp.StatusCode, resp.Header.Get("Retry-After"))
}

// script runs one of scripts/ and returns what it printed.
func script(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{filepath.Join("..", "..", "..", "scripts", name)}, args...)...)
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, failure.String())
	}
	return strings.TrimSpace(string(out))
}
