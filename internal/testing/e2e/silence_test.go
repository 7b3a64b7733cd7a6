package e2e

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// short windows and little lateness: a key that is silent for seconds leaves.
const short = `
    - name: three
      match: {api: "*"}
      limit: 3
      per: 1s
      window: sliding
      then: {block: 1s}
    - name: sums
      match: {api: "*"}
      count: {sum: cost}
      limit: 6
      per: 1s
      window: sliding
      then: {block: until-reset}
    - name: second
      match: {api: "*"}
      limit: 4
      per: 1s
      window: tumbling
      then: {block: until-reset}
    - name: networks
      key: ip
      match: {api: "*"}
      limit: 1G
      per: 1s
      then: {block: until-reset}
  max_lateness: 1s
  recent_ids: {count: 8, for: 1s}
`

// Keys that fall silent leave and come back, through kills: every verdict is the one of a
// model that forgets nothing.
func TestSilentKeysThroughKills(t *testing.T) {
	t.Parallel() // it waits more than it works
	servers.Nightly(t, "kills")
	r := newRig(t, short)
	rnd := newRand(t)
	a := r.aggregator("a", "--instance-id", "a", "--checkpoint-every", "50ms").Start().Ready()
	killed := make(chan struct{})
	seed := rnd.Uint64()
	emitted := inBackground(func() { r.emitWaves(rand.New(rand.NewPCG(seed, 4)), killed) })
	for range 4 {
		eventually(t, "keys leave", func() bool { return a.metric("tallygate_keys_swept_total") > 200 })
		time.Sleep(time.Duration(rnd.IntN(1000)) * time.Millisecond) // a moment of chance
		a.Kill()
		a.Start().Ready()
	}
	close(killed)
	emitted()
	r.caughtUp()
	m := newModel(r)
	r.compareRedis(m.compareVerdicts(r))
	// Let the last keys fall silent too, and a checkpoint or two pass.
	time.Sleep(2500 * time.Millisecond)
	d := differencesOf("counts of silent keys")
	explain(t, m.keys(), func(key string, reply explainReply) {
		for _, e := range reply.list {
			if d.compared(); e.Count != 0 || e.Verdict != nil {
				d.add("%s has %+v", key, e)
			}
		}
	}, a)
	d.report(t)
}

// emitWaves emits for uids that take turns: each is busy for a moment, then silent for seconds.
func (r *rig) emitWaves(rnd *rand.Rand, until <-chan struct{}) {
	e := r.emitter(func(c *emit.Config) { c.EventsPerRecord = 10 })
	defer closeEmitter(r.t, e)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for wave := 0; ; wave++ {
		select {
		case <-until:
			return
		case <-tick.C:
		}
		for range 40 {
			n := (wave*4 + rnd.IntN(100)) % 2000
			ev := event.Event{UID: fmt.Sprintf("s%d", n), API: "x.y", Cost: event.Decimal(1+rnd.IntN(2)) * event.One, Time: event.NoTime}
			if rnd.IntN(4) == 0 {
				ev.Time = event.FromTime(time.Now()) - event.Micros(rnd.IntN(900))*event.Millisecond
			}
			if rnd.IntN(4) == 0 {
				ev.ID = fmt.Sprintf("w%d-%d", wave, rnd.Uint64())
			}
			if err := e.EmitWait(r.t.Context(), ev); err != nil {
				r.t.Errorf("emit: %v", err)
				return
			}
		}
	}
}
