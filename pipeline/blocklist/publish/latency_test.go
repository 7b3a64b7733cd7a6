package publish

import (
	"fmt"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/verdict"
)

// waiting is a Sink that tells when a verdict came.
type waiting struct {
	*rig.Memory
	came chan int64
}

func (w waiting) Apply(_ int, changes []verdict.Verdict) {
	for _, v := range changes {
		w.came <- v.Seq
	}
}

// BenchmarkOfferToSink is the way of one verdict from its owner through a real Redis to an
// enforcer.
func BenchmarkOfferToSink(b *testing.B) {
	kafka, client := rig.NewBroker(b, 1), rig.Dial(b, rig.RealRedis(b))
	p, _ := startPublisher(b, kafka, client, nil)
	p.Own(0)
	sink := waiting{rig.NewMemory(), make(chan int64, 1)}
	follow(b, client, sink, 1)
	testrun.Eventually(b, "the feed follows", func() bool { return sink.AppliedUpTo(0) > 0 })
	seq := int64(0)
	for b.Loop() {
		r := rig.Record(rig.Block(fmt.Sprint(seq%1000), seq+1, time.Hour))
		r.Offset = seq
		p.Offer(0, seq, seq+1, []Record{r})
		if seq++; <-sink.came != seq {
			b.Fatal("another verdict came")
		}
	}
}
