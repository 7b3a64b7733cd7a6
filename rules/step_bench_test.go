package rules

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tallygate/tallygate/event"
)

// BenchmarkStep steps uniformly drawn keys, each event hitting all of five limits. With one
// key everything is in the processor's cache; with many, what a step costs is mostly memory.
func BenchmarkStep(b *testing.B) {
	for _, keys := range []int{1, 1000, 200_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			set := fiveLimits(b)
			p := set.NewStepper()
			rng := rand.New(rand.NewPCG(1, 1))
			ids := make([]string, 1<<16)
			for i := range ids {
				ids[i] = fmt.Sprintf("01J8Z3K4M5%06d", i)
			}
			states := make([][]byte, keys)
			in := Input{Key: []byte("uid=42"), At: noon, Hits: unitHits(set.Limits...)}
			in.Hits[4].Amount = 2048 * event.One
			apart := max(event.Minute/event.Micros(keys*20), 1) // twenty events a key and minute
			var next []byte
			i := 0
			step := func() {
				k := rng.IntN(keys)
				in.At, in.ID = in.At+apart, ids[i%len(ids)]
				i++
				next, _ = p.Step(next[:0], states[k], in)
				states[k] = append(states[k][:0], next...)
			}
			for range keys * 10 {
				step()
			}
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
			total := 0
			for _, s := range states {
				total += len(s)
			}
			b.ReportMetric(float64(total)/float64(keys), "bytes/key")
		})
	}
}

// BenchmarkStepQuiet steps keys that have seen three events, without ids: what most keys of a
// large population are like. Their states fit into the processor's cache.
func BenchmarkStepQuiet(b *testing.B) {
	set := fiveLimits(b)
	set.Limits[1].Limit = 1000 * event.One // none is blocked
	set.finish()
	p := set.NewStepper()
	in := Input{Key: []byte("uid=42"), Hits: unitHits(set.Limits...)}
	in.Hits[4].Amount = 2048 * event.One
	states := make([][]byte, 256)
	for k := range states {
		for i := range 3 {
			in.At = noon + event.Micros(k)*777_777 + event.Micros(i)*7*event.Second
			states[k], _ = p.Step(nil, states[k], in)
		}
	}
	next := make([]byte, 0, 1024)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		k := i % len(states)
		i++
		in.At = noon + event.Micros(k)*777_777 + 30*event.Second
		next, _ = p.Step(next[:0], states[k], in)
	}
	b.ReportMetric(float64(len(states[0])), "bytes/key")
}
