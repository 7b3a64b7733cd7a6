package emit

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go/protocol"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// A batch on the wire must fit into Kafka's default message.max.bytes (1 MiB + 12), lz4 or not.
func TestFullBatchesFitKafkasDefault(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for _, perRecord := range []int{1, 10, 1000} {
		for _, most := range []int{200, 1200, 60_000} {
			b := new(batch)
			key := make([]byte, 100)
			for {
				value := make([]byte, 1+rnd.IntN(most))
				for i := range value {
					value[i] = byte(rnd.Uint32())
				}
				i := item{key: key, value: value, cost: 1}
				if rnd.IntN(3) == 0 {
					i.trace = []byte(traceparent)
				}
				if !b.room(len(key), len(value)+len(i.trace), perRecord) {
					break
				}
				b.add(&i, perRecord)
			}
			b.seal(perRecord)
			for i := range b.records {
				b.records[i].sequence = 1 << 60
			}
			for _, codec := range []protocol.Attributes{0, protocol.Lz4} {
				set := protocol.RecordSet{Version: 2, Attributes: codec, Records: newReader(b, make([]byte, 16), 7)}
				n, err := set.WriteTo(io.Discard)
				if err != nil {
					t.Fatal(err)
				}
				if n > 1<<20 {
					t.Errorf("%d records of up to %d bytes, %d a record, codec %v: %d bytes", len(b.records), most, perRecord, codec, n)
				}
			}
		}
	}
}

func TestDividingABatchKeepsEverything(t *testing.T) {
	b := new(batch)
	for n := range 7 {
		i := item{key: []byte("key"), value: fmt.Append(nil, n), cost: 10}
		if n%3 == 0 {
			i.trace = []byte(traceparent[:len(traceparent)-5] + fmt.Sprintf("%02d-01", n))
		}
		b.add(&i, 1)
		b.records[n].sequence = uint64(n + 1)
	}
	odd, even := b.divide(func(i int) bool { return i%2 == 1 })
	for _, half := range []struct {
		*batch
		first, events int
	}{{odd, 1, 3}, {even, 0, 4}} {
		if half.events != half.batch.events || len(half.records) != half.events {
			t.Errorf("%d events", half.batch.events)
		}
		for i, r := range half.records {
			n := half.first + 2*i
			if got := string(half.data[r.start:r.end]); got != fmt.Sprintf("key%d", n) || r.sequence != uint64(n+1) {
				t.Errorf("record %d is %s with sequence %d", i, got, r.sequence)
			}
			trace := string(half.traceOf(&half.records[i]))
			if n%3 != 0 && trace != "" || n%3 == 0 && !strings.HasSuffix(trace, fmt.Sprintf("%02d-01", n)) {
				t.Errorf("record %d has the context %q", i, trace)
			}
		}
	}
	if odd.traced != 1 || even.traced != 2 {
		t.Errorf("%d and %d contexts", odd.traced, even.traced)
	}
	if odd.bytes+even.bytes != 70 {
		t.Errorf("%d bytes of the budget", odd.bytes+even.bytes)
	}
}

// With the partitions known, as without (see TestEmitAllocatesNothing), Emit allocates nothing.
func TestRoutedEmitAllocatesNothing(t *testing.T) {
	// No broker: only the test uses the lanes.
	e, err := New(Config{Brokers: []string{"127.0.0.1:1"}, TracesPerSecond: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	lanes := make([]*lane, 4)
	for p := range lanes {
		lanes[p] = &lane{perRecord: 1}
	}
	e.publish(lanes)
	ev := event.Event{UID: "42", API: "search.query", Attrs: []event.Attr{{Name: "device", Value: event.StringValue("d1")}}}
	anonymous := event.Event{API: "page.view"}
	traced := ev
	traced.Trace, _ = event.ParseTrace(traceparent)
	emitBoth := func() {
		e.Emit(ev)
		e.Emit(traced)
		e.Emit(anonymous)
	}
	for range 20_000 {
		emitBoth()
	}
	if got := testrun.Allocs(10_000, emitBoth); got != 0 && !UnderRace() {
		t.Errorf("%v allocations", got)
	}
	for _, l := range lanes { // the sender does not know them
		for b := l.take(true); b != nil; b = l.take(true) {
			e.unreserve(b.events, b.bytes)
		}
	}
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// UnderRace: with the race detector sync.Pool forgets at random.
func UnderRace() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
