package enforcer

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// Of three processes on a real Redis one is killed: it stays on the list as one that is gone, by Redis' clock,
// and the others stay. A Redis that restarts empty has these again, and not the one that was killed.
func TestAProcessThatIsKilledIsGone(t *testing.T) {
	server := servers.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	processes := map[string]*exec.Cmd{}
	for _, name := range []string{"a", "b", "c"} {
		cmd := exec.Command(os.Args[0], "--redis", server.Addr(), "--instance-id", name, "--listen", "127.0.0.1:0", "--grpc-listen", "none", "--metrics-listen", "127.0.0.1:0")
		cmd.Env = append(os.Environ(), asProgram+"=1")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		processes[name] = cmd
	}
	list := func() (here, gone string, age time.Duration) {
		all, err := presence.List(context.Background(), client, "")
		if err != nil {
			return "", "", 0 // Redis restarts
		}
		for i := range all {
			if all[i].Gone() {
				gone, age = gone+all[i].Name, all[i].Age
			} else {
				here += all[i].Name
			}
		}
		return here, gone, age
	}
	testrun.Eventually(t, "all are there", func() bool { here, _, _ := list(); return here == "abc" })
	if err := processes["b"].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	testrun.Eventually(t, "the killed one is gone, and the others are there", func() bool { here, gone, _ := list(); return here == "ac" && gone == "b" })
	t.Logf("gone %v after it was killed", time.Since(killed).Round(time.Millisecond))
	if _, _, age := list(); age < presence.GoneAfter {
		t.Errorf("it is gone after %v", age)
	}
	if took := time.Since(killed); took < presence.GoneAfter-presence.Every-time.Second {
		t.Errorf("it was gone after %v", took)
	}
	if err := client.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	server.Start()
	testrun.Eventually(t, "a Redis that is empty has those that live", func() bool { here, gone, _ := list(); return here == "ac" && gone == "" })
	if err := processes["a"].Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = processes["a"].Wait()
	if here, gone, _ := list(); here != "c" || gone != "" {
		t.Errorf("one was told to stop: there are %q, gone %q", here, gone)
	}
}
