package blocklist

import (
	"fmt"
	"testing"
	"time"

	"github.com/tallygate/tallygate/pipeline/verdict"
)

// waiting is a Sink that tells when a verdict came.
type waiting struct {
	*memory
	came chan int64
}

func (w waiting) Apply(_ int, changes []verdict.Verdict) {
	for _, v := range changes {
		w.came <- v.Seq
	}
}

// BenchmarkOfferToSink is the way of one verdict from its owner through a real Redis to an enforcer.
func BenchmarkOfferToSink(b *testing.B) {
	kafka, client := newBroker(b, 1), dial(b, realRedis(b))
	p, _ := kafka.publisher(client, nil)
	p.Own(0)
	sink := waiting{newMemory(), make(chan int64, 1)}
	startFeed(b, client, sink, nil)
	eventually(b, "the feed follows", func() bool { return sink.appliedUpTo(0) > 0 })
	seq := int64(0)
	for b.Loop() {
		r := record(block(fmt.Sprint(seq%1000), seq+1, time.Hour))
		r.Offset = seq
		p.Offer(0, seq, seq+1, []Record{r})
		if seq++; <-sink.came != seq {
			b.Fatal("another verdict came")
		}
	}
}
