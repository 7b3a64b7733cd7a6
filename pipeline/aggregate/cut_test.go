package aggregate

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// Event partitions are restored from an older copy, and grow again beyond what was counted. Their
// new events have offsets that were counted. Once, 200 of 600 were never counted, silently.
func TestALogThatWasCutAndGrewAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a broker")
	}
	t.Parallel()
	data := t.TempDir()
	k := servers.StartKafka(t, nil, "KAFKA_DATA="+data)
	r := newRig(t, []string{k.Addr()})
	set := compile(t, byIPAndUID)
	said := &logged{}
	m, l := r.counting(set, 200, said.into)
	m.end(t)
	copied := t.TempDir()
	restart := func(between func()) {
		k.Stop()
		between()
		k.Start()
		eventually(t, "the broker leads again", func() bool {
			_ = r.client.RefreshMetadata(r.names.Events)
			_, err := r.client.GetOffset(r.names.Events, 0, sarama.OffsetNewest)
			return err == nil
		})
	}
	restore := func() { copyPartitions(t, copied, data, r.names.Events+"-*") }
	restart(func() { copyPartitions(t, data, copied, r.names.Events+"-*") })
	m = r.begin(set, said.into)
	l.emit(400)
	l.counted(m)
	m.end(t)

	restart(restore)
	l.emit(900) // in offsets that were counted, and beyond
	m = r.start(set, said.into)
	if err := r.ended(m); err == nil || !strings.Contains(err.Error(), "was cut") || !strings.Contains(err.Error(), "--accept-new-topic") {
		t.Fatalf("it ended with: %v", err)
	}
	m = r.begin(set, said.into, func(c *Config) { c.AcceptNewTopic = true })
	l.counted(m)
	l.stays(m)
	m.end(t)

	// The same under a running owner: it stops, instead of reading on at the same offset.
	m = r.begin(set, said.into)
	l.emit(300)
	l.counted(m)
	restart(restore)
	if err := r.ended(m); err == nil || !strings.Contains(err.Error(), "was cut") {
		t.Fatalf("it ended with: %v", err)
	}
}

// ended waits for a member that stops by itself.
func (r *rig) ended(m *member) error {
	r.t.Helper()
	select {
	case err := <-m.done:
		m.done <- err
		return err
	case <-time.After(2 * time.Minute):
		r.t.Fatal("it does not stop")
		return errors.New("unreachable")
	}
}

// copyPartitions copies partitions' folders over existing ones.
func copyPartitions(t *testing.T, from, to, pattern string) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(from, pattern))
	if err != nil || len(list) == 0 {
		t.Fatalf("no partitions in %s: %v", from, err)
	}
	for _, dir := range list {
		place := filepath.Join(to, filepath.Base(dir))
		if err := os.RemoveAll(place); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cp", "-a", dir, place).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}
