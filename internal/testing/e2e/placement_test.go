package e2e

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
)

// commutative counts by windows in which the order of events changes nothing.
const commutative = `
    - name: yearly-utc
      match: {api: "*"}
      limit: 1G
      per: year
      window: calendar
      then: {block: until-reset}
    - name: bytes-utc
      match: {api: upload.*}
      count: {sum: attrs.bytes}
      limit: 1Gi
      per: year
      window: calendar
      then: {block: until-reset}
    - name: ten
      match: {api: "*"}
      limit: 10
      per: year
      window: calendar
      then: {block: until-reset}
`

// Events that a foreign producer put where they don't belong are forwarded, and count once,
// whoever is killed meanwhile.
func TestForeignPlacement(t *testing.T) {
	t.Parallel() // it waits more than it works
	servers.Nightly(t, "input")
	r := newRig(t, commutative)
	rnd := newRand(t)
	a, b := r.aggregator("a", "--instance-id", "a"), r.aggregator("b", "--instance-id", "b")
	a.Start().Ready()
	b.Start().Ready()
	seed := rnd.Uint64()
	put := inBackground(func() { r.putByCRC32(seed, 60_000) })
	for _, p := range []*Process{a, b} {
		p.awaitReady()
		time.Sleep(time.Duration(rnd.Int64N(int64(1500 * time.Millisecond)))) // a moment of chance
		p.Kill()
		t.Logf("killed %s", p.name)
		p.Start()
	}
	put()
	a.Ready()
	b.Ready()
	r.caughtUp()

	n := newNaive(r)
	n.compare(t, "yearly-utc", "bytes-utc", a, b)
	r.compareTens(n)
}

// putByCRC32 writes n events, half of them in the partition that librdkafka's default takes, and
// half of them where they belong, some with ids.
func (r *rig) putByCRC32(seed uint64, n int) {
	rnd := rand.New(rand.NewPCG(seed, 3))
	var batch []*sarama.ProducerMessage
	for i := range n {
		uid := fmt.Sprintf("u%d", rnd.IntN(4000))
		value := fmt.Sprintf(`{"api":"upload.put","uid":%q,"attrs":{"bytes":%d}}`, uid, rnd.IntN(1000))
		if i%3 == 0 {
			value = fmt.Sprintf(`{"id":"e%d",%s`, i, value[1:])
		}
		m := r.record(uid, value)
		if i%2 == 0 {
			m.Partition = int32(crc32.ChecksumIEEE([]byte(uid)) % uint32(r.partitions))
		}
		if batch = append(batch, m); len(batch) == 600 {
			if err := r.send.SendMessages(batch); err != nil {
				r.t.Errorf("put events: %v", err)
				return
			}
			batch = batch[:0]
			time.Sleep(40 * time.Millisecond) // a stream, not a heap
		}
	}
}

// compareTens finds the tenth event's verdict of every uid that had so many, from the owner's
// partition.
func (r *rig) compareTens(n *naive) {
	r.t.Helper()
	got := readVerdicts(r)
	d := differencesOf("verdicts at ten events")
	for uid, count := range n.costs {
		key := event.FormatKey([]event.Dim{{Name: "uid", Value: uid}}) + "|ten"
		d.compared()
		all := got.all[key]
		switch {
		case count < 10 && len(all) > 0:
			d.add("%s has a verdict at %d", uid, count)
		case count >= 10 && (len(all) == 0 || all[0].Count != 10*event.One):
			d.add("%s has %s with %d events", uid, history(all), count)
		}
	}
	d.report(r.t)
	r.compareRedis(got)
}
