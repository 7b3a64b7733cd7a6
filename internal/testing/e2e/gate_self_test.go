package e2e

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// echo answers every byte with itself, as a server that a gate leads to.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, g *gate) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// says writes, and reads as much again.
func says(c net.Conn, text string, within time.Duration) (string, error) {
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	return hears(c, len(text), within)
}

func hears(c net.Conn, n int, within time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(within))
	buf := make([]byte, n)
	_, err := io.ReadFull(c, buf)
	return string(buf), err
}

const long, briefly = 10 * time.Second, 50 * time.Millisecond

func TestGateCutsStallsAndHeals(t *testing.T) {
	g := newGate(t, false).lead(echo(t))
	c := dial(t, g)
	if got, err := says(c, "open", long); err != nil || got != "open" {
		t.Fatalf("through an open gate comes %q, %v", got, err)
	}
	g.Stall()
	if got, err := says(c, "late", briefly); err == nil {
		t.Fatalf("through a stalled gate comes %q", got)
	}
	g.Heal()
	if got, err := hears(c, 4, long); err != nil || got != "late" {
		t.Fatalf("what was held up comes as %q, %v", got, err)
	}
	g.Cut()
	if got, err := says(c, "gone", long); err == nil {
		t.Fatalf("through a cut comes %q", got)
	}
	if got, err := says(dial(t, g), "none", long); err == nil {
		t.Fatalf("through a closed gate comes %q", got)
	}
	g.Heal()
	if got, err := says(dial(t, g), "back", long); err != nil || got != "back" {
		t.Fatalf("through a healed gate comes %q, %v", got, err)
	}
}

// produce is a request as sarama sends it.
func produce(correlation int32, topic string, keys ...string) string {
	var records []byte
	for i, key := range keys {
		r := kmsg.Record{OffsetDelta: int32(i), Key: []byte(key), Value: []byte("v")}
		body := r.AppendTo(nil)[1:] // behind a length of 0
		records = append(kbin.AppendVarint(records, int32(len(body))), body...)
	}
	b := kmsg.RecordBatch{Magic: 2, NumRecords: int32(len(keys)), Records: records}
	b.Length = int32(len(b.AppendTo(nil)) - 12)
	p := kmsg.ProduceRequest{Version: 8, Topics: []kmsg.ProduceRequestTopic{{Topic: topic,
		Partitions: []kmsg.ProduceRequestTopicPartition{{Records: b.AppendTo(nil)}}}}}
	head := kbin.AppendInt32(kbin.AppendInt16(kbin.AppendInt16(nil, 0), 8), correlation)
	frame := append(kbin.AppendNullableString(head, nil), p.AppendTo(nil)...)
	return string(append(kbin.AppendInt32(nil, int32(len(frame))), frame...))
}

func TestGateHoldsAtAMoment(t *testing.T) {
	g := newGate(t, true).lead(echo(t))
	c := dial(t, g)
	m := gates{g}.arm(&moment{match: appends("verdicts", keyIs("k2")), nth: 1})
	for _, passes := range []string{produce(1, "events", "k2"), produce(2, "verdicts", "k1", "k3"), produce(3, "verdicts", "k1", "k2")} {
		if got, err := says(c, passes, long); err != nil || got != passes {
			t.Fatalf("before the moment comes %q, %v", got, err)
		}
	}
	second := produce(4, "verdicts", "k2")
	if _, err := says(c, second, briefly); err == nil {
		t.Fatal("the second that matches is not held")
	}
	<-m.hit
	m.release()
	if got, err := hears(c, len(second), long); err != nil || got != second {
		t.Fatalf("what was held comes as %q, %v", got, err)
	}

	// The echo's first bytes stand where an answer has its correlation id: 0, and the version.
	m = gates{g}.arm(&moment{match: appends("verdicts", noOwnKey), after: true})
	own := produce(8, "verdicts", "\x00fence")
	if got, err := says(c, own, long); err != nil || got != own {
		t.Fatalf("an owner's own record comes as %q, %v", got, err)
	}
	if _, err := says(c, produce(8, "verdicts", "k"), briefly); err == nil {
		t.Fatal("the answer is not held")
	}
	<-m.hit
	m.drop()
	if _, err := hears(c, 1, long); err == nil {
		t.Fatal("what was dropped comes")
	}
}
