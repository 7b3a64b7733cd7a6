package instance_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit/instance"
)

// However many ask at once, exactly the limit is let in, under all rules or none, also while rules are loaded.
func TestManyAtOnce(t *testing.T) {
	const list = `    - {name: a, match: {api: "*"}, limit: 1000, per: 1h, window: tumbling, scope: instance}
    - {name: b, key: api, match: {api: "*"}, window: bucket, limit: 700, per: 1h, scope: instance}
    - {name: c, key: [], match: {api: "*"}, window: in-flight, limit: 3, scope: instance}
`
	const other = `    - {name: c, key: [], match: {api: "*"}, window: in-flight, limit: 3, scope: instance}
    - {name: b, key: api, match: {api: "*"}, window: bucket, limit: 700, per: 1h, scope: instance}
    - {name: a, match: {api: "*"}, limit: 1000, per: 1h, window: tumbling, scope: instance, action: throttle}
`
	sets := [...]string{list, other}
	x := instance.New(compiled(t, list), instance.Options{Now: func() event.Micros { return noon }})
	var admitted, under, loads atomic.Int64
	var apis [2]atomic.Int64
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 1500 {
				which := (worker + i) % 2
				r, permit := x.Admit(request(fmt.Sprint("api", which), "42"))
				if r.Allowed != (permit != nil) {
					t.Errorf("%s, and its permit is %v", says(r), permit)
				}
				if r.Allowed {
					if n := under.Add(1); n > 3 {
						t.Errorf("%d are under way", n)
					}
					admitted.Add(1)
					apis[which].Add(1)
					under.Add(-1)
				}
				permit.Done()
				if worker == 0 && i%100 == 0 {
					x.Load(compiled(t, sets[loads.Add(1)%2]))
					x.Stats()
				}
			}
		})
	}
	wg.Wait()
	for range 2000 { // what was denied for what was under way comes again
		for which := range apis {
			if r, permit := x.Admit(request(fmt.Sprint("api", which), "42")); r.Allowed {
				admitted.Add(1)
				apis[which].Add(1)
				permit.Done()
			}
		}
	}
	if admitted.Load() != 1000 || apis[0].Load() > 700 || apis[1].Load() > 700 {
		t.Errorf("%d were let in, of the APIs %d and %d", admitted.Load(), apis[0].Load(), apis[1].Load())
	}
	for _, s := range x.Stats() {
		if s.Admitted != 1000 {
			t.Errorf("%s counted %d", s.Limit.Name, s.Admitted)
		}
	}
}

// Keys that come and go at once stay within their bound, and what is under way is given back.
func TestManyKeysAtOnce(t *testing.T) {
	x := instance.New(compiled(t, `    - {name: a, match: {api: x}, limit: 5, per: 1m, scope: instance, keys: 50}
    - {name: b, match: {api: x}, window: in-flight, limit: 1, scope: instance, keys: 20}
`), instance.Options{})
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 3000 {
				_, permit := x.Admit(request("x", fmt.Sprint(i*7919%(100+worker))))
				permit.Done()
			}
		})
	}
	wg.Wait()
	x.Admit(request("x", "last"))
	for _, s := range x.Stats() {
		if s.Keys > s.Limit.Rule.MaxKeys || s.Evicted == 0 {
			t.Errorf("%s: %+v", s.Limit.Name, s)
		}
	}
	for i := range 110 {
		r, permit := x.Admit(request("x", fmt.Sprint(i)))
		if !r.Allowed && r.Limit.Name == "b" {
			t.Errorf("%d is under way still: %s", i, says(r))
		}
		permit.Done()
	}
}

func TestAdmitAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector drops what is pooled")
	}
	x := instance.New(compiled(t, benchRules), instance.Options{})
	for _, e := range []*event.Event{request("bucket", "42"), request("two", "42"), request("other", "42"), request("denied", "42")} {
		run := func() { x.Admit(e) }
		run()
		if n := testrun.Allocs(1000, run); n > 0 {
			t.Errorf("%s: %v allocations", e.API, n)
		}
	}
}

const benchRules = `    - {name: bucket, match: {api: bucket}, window: bucket, limit: 1G, per: 1s, scope: instance}
    - {name: warm, match: {api: warm}, window: bucket, limit: 1G, per: 1s, warm_up: {time: 1s, from: 25%}, scope: instance}
    - {name: two-a, match: {api: two}, window: tumbling, limit: 1G, per: 1s, scope: instance}
    - {name: two-b, key: [], match: {api: two}, window: tumbling, limit: 1G, per: 1s, scope: instance}
    - {name: sliding, match: {api: sliding}, limit: 1G, per: 1m, scope: instance}
    - {name: denied, match: {api: denied}, limit: 1, per: 1d, scope: instance}
    - {name: at-once, key: api, match: {api: at-once}, window: in-flight, limit: 100, scope: instance}
`

func BenchmarkAdmit(b *testing.B) {
	for _, api := range []string{"other", "bucket", "warm", "two", "sliding", "denied", "at-once"} {
		b.Run(api, func(b *testing.B) {
			x := instance.New(compiled(b, benchRules), instance.Options{})
			e := request(api, "user-4711")
			b.ReportAllocs()
			for b.Loop() {
				_, permit := x.Admit(e)
				permit.Done()
			}
		})
	}
}

func BenchmarkAdmitManyKeys(b *testing.B) {
	x := instance.New(compiled(b, benchRules), instance.Options{})
	var events []*event.Event
	for i := range 8192 {
		events = append(events, request("bucket", fmt.Sprint("user-", i)))
	}
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			x.Admit(events[i%len(events)])
		}
	})
}
