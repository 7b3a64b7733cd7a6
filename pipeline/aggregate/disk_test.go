package aggregate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
)

// disk is a broker's data folder, to be filled.
type disk struct {
	t     *testing.T
	dir   string
	small bool // a file system of its own; else the size of the broker's files is bounded
}

// newDisk mounts a small file system, where that is allowed.
func newDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{t: t, dir: t.TempDir()}
	if err := syscall.Mount("tmpfs", d.dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Logf("no file system of its own (%v): the broker's files are kept from growing instead", err)
		return d
	}
	d.small = true
	t.Cleanup(func() { _ = syscall.Unmount(d.dir, syscall.MNT_DETACH) })
	return d
}

func (d *disk) ballast() string { return filepath.Join(d.dir, "ballast") }

// fill leaves no room.
func (d *disk) fill(broker *servers.KafkaProc) {
	d.t.Helper()
	if !d.small {
		if out, err := exec.Command("prlimit", "--pid", fmt.Sprint(broker.Pid()), "--fsize=100:").CombinedOutput(); err != nil {
			d.t.Fatalf("prlimit: %v %s", err, out)
		}
		return
	}
	f, err := os.Create(d.ballast())
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
}

// free makes room again. A broker with bounded files is unbounded after its next start.
func (d *disk) free() {
	if d.small {
		if err := os.Remove(d.ballast()); err != nil {
			d.t.Fatal(err)
		}
	}
}

// The broker's disk fills up while it works, and the broker gives up, as Kafka does. When it is
// back with room, everything that it has acknowledged is counted once.
func TestADiskThatIsFull(t *testing.T) {
	t.Parallel() // it mostly waits
	if testing.Short() {
		t.Skip("starts a broker")
	}
	servers.Kafka(t)
	d := newDisk(t)
	broker := servers.StartKafka(t, map[string]string{"log.index.size.max.bytes": "65536"}, "KAFKA_DATA="+d.dir)
	r := newRig(t, []string{broker.Addr()})
	m := r.begin(compile(t, byIPAndUID))
	l := r.load()
	l.uids = 400 // few events each, so that all ids are remembered: retries may repeat them
	l.emit(600)
	l.counted(m)
	acknowledged := 0
	d.fill(broker)
	eventually(t, "there is no room", func() bool {
		err := l.try()
		if err == nil {
			acknowledged++
		}
		return err != nil
	})
	broker.Kill() // if it has not ended itself
	d.free()
	broker.Start()
	l.last(t)
	t.Logf("%d events were acknowledged before the disk was full", acknowledged)
	l.emit(300)
	l.counted(m)
	l.stays(m)
	seen := map[string]bool{}
	eventually(t, "every ip over the limit has its verdict", func() bool { // behind its count
		clear(seen)
		for _, v := range r.verdicts() {
			if v.Rule == "by-ip" {
				seen[v.KeyText()] = true
			}
		}
		for ip, n := range l.byIP {
			if n >= 50 && !seen["ip="+ip] {
				return false
			}
		}
		return true
	})
	for ip, n := range l.byIP {
		if n < 50 && seen["ip="+ip] {
			t.Errorf("%s was counted %d times, and has a verdict", ip, n)
		}
	}
}

// try emits one event, which stays the one to emit until it is acknowledged.
func (l *load) try() error {
	if l.pending == nil {
		e := hit(fmt.Sprintf("u%d", l.next%l.uids), "a.b")
		e.ID = fmt.Sprintf("e%d", l.next)
		l.next++
		l.pending = e
	}
	e := l.pending
	_, _, err := l.r.send.SendMessage(&sarama.ProducerMessage{
		Topic: l.r.names.Events, Partition: event.Partition([]byte(e.UID), rigPartitions),
		Key: sarama.StringEncoder(e.UID), Value: sarama.ByteEncoder(event.AppendJSON(nil, e)),
	})
	if err == nil {
		l.byUID[e.UID]++
		l.pending = nil
	}
	return err
}

// last emits the event that was refused, which may be in the log all the same: its id tells.
func (l *load) last(t *testing.T) {
	t.Helper()
	eventually(t, "what was refused is taken", func() bool {
		if l.pending == nil {
			return true
		}
		time.Sleep(100 * time.Millisecond)
		return l.try() == nil
	})
}
