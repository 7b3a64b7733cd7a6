package shard

import (
	"fmt"
	"testing"

	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

// BenchmarkForward measures an event on the key of one address: at the partition that reads it, which counts it
// nowhere else, and at the one that owns the key. Each event has an id.
func BenchmarkForward(b *testing.B) {
	set := compile(b, `
  rules:
    - {name: minute, key: attrs.office, match: {api: "search.*"}, limit: 1000000000, per: 1m, window: tumbling, then: {block: 1m}}`)
	for _, packs := range []bool{false, true} {
		name := "whole"
		if packs {
			name = "packs"
		}
		const events = 4096
		var values []string
		for i := range events {
			values = append(values, fmt.Sprintf(`{"id":"e1-%09d","uid":"user-%07d","api":"search.query","outcome":"success","ip":"203.0.113.%d","attrs":{"device":"d%d","office":"o1","bytes":%d}}`,
				i, i*7%100_000, i%250, i%1000, i%4096))
		}
		b.Run("forwarded="+name+"/reads", func(b *testing.B) {
			p, n := newPair(b, set, packs), int64(0)
			for b.Loop() {
				p.read(n, values[n%events])
				if n++; n%events == 0 {
					p.forward()
				}
			}
		})
		b.Run("forwarded="+name+"/owns", func(b *testing.B) {
			for left := b.N; left > 0; left -= events { // the last round is done to its end
				b.StopTimer()
				p := newPair(b, set, packs)
				for i, v := range values {
					p.read(int64(i), v)
				}
				forwards := p.forward()
				b.StartTimer()
				for i, v := range forwards {
					if err := p.to.Record(Loop, &record.Record{Offset: int64(i), Value: v}, p.clock); err != nil {
						b.Fatal(err)
					}
					if !p.to.Gathered() && i+1 < len(forwards) {
						continue
					}
					if err := p.to.Step(Loop, int64(i)+1, p.clock); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
