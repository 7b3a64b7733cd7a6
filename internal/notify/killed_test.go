package notify

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/notify/note"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// The program is killed again and again, on a real Kafka, before, while and after a receiver takes a message.
// Nothing is lost; what comes again has the id that it had, and says the same: so a receiver that drops repeats
// has everything once.
func TestKilled(t *testing.T) {
	brokers, prefix := servers.Kafka(t), servers.Name(t)
	servers.DropTopics(t, brokers, prefix)
	createAudit(t, brokers, prefix+".audit")
	rnd := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	b := newInbox(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "notify.yaml")
	text := fmt.Sprintf(`
receivers: [{name: hook, webhook: {url: %q}}]
routes:
  - {name: grouped, on: command, to: hook, wait: 300ms, every: 700ms, rate: none}
  - {name: single, on: fuse, to: hook, wait: 0s, every: 0s, rate: none}
`, b.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func() *exec.Cmd {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), asProgram+"="+strings.Join([]string{"--notify", file, "--kafka", strings.Join(brokers, ","), "--prefix", prefix, "--metrics-listen", "none"}, "\n"))
		cmd.Stderr = t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	kill := func(cmd *exec.Cmd) { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	program := start()
	defer func() { kill(program) }()
	// It has begun when it tells what is written now.
	first := 0
	testrun.Eventually(t, "it tells something", func() bool {
		writeAudit(t, brokers, prefix+".audit", 0, fuseOf("first"))
		first++
		time.Sleep(200 * time.Millisecond) // between two entries, not for a condition
		return b.attempts() > 0
	})
	written := 0
	for life := range 6 {
		var requests atomic.Int64
		bad := rnd.Int64N(4)
		b.set(func(w http.ResponseWriter) bool { // by several requests at once
			if requests.Add(1)%4 == bad {
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			}
			return false
		})
		seen := b.attempts()
		for range 10 + rnd.IntN(20) {
			p := rnd.IntN(partitions)
			writeAudit(t, brokers, prefix+".audit", p, commandOf(fmt.Sprint(written)), fuseOf(fmt.Sprint("r", written)))
			written += 2
		}
		at := seen + 1 + rnd.IntN(12)
		testrun.Eventually(t, fmt.Sprint("life ", life, " is in the middle of it"), func() bool { return b.attempts() >= at })
		kill(program)
		program = start()
	}
	b.set(nil)
	distinct := func() (notes int, repeats int) {
		was := map[string]note.Message{}
		for _, m := range b.messages() {
			if m.Rule == "first" {
				continue
			}
			if before, again := was[m.ID]; again {
				if repeats++; !reflect.DeepEqual(before, m) {
					t.Fatalf("one id, two messages:\n%+v\n%+v", before, m)
				}
				continue
			}
			was[m.ID] = m
			notes += m.Count
		}
		return notes, repeats
	}
	testrun.Eventually(t, "all is told", func() bool { n, _ := distinct(); return n >= written })
	notes, repeats := distinct()
	t.Logf("%d entries, %d messages, %d of them repeats", written, len(b.messages()), repeats)
	if notes != written {
		t.Errorf("%d notes of %d entries", notes, written)
	}
}
