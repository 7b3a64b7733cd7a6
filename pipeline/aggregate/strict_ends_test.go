package aggregate

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
)

// TestWhatIsCountedReachesTheEnds: also where a log ends with the marker of a transaction, which is no
// record, or with records that were taken back. Otherwise no permit of a quiet partition would be lost, and
// no Redis that lost its memory would grant again.
func TestWhatIsCountedReachesTheEnds(t *testing.T) {
	onKafka(t, func(t *testing.T, r *rig) {
		set := compile(t, `
  rules:
    - {name: daily, match: {api: "a.*"}, limit: 9, per: day, window: calendar, strict: true}
    - {name: address, key: ip, match: {api: "a.*"}, limit: 9, per: day, window: calendar, strict: true}`)
		f := &strictFollower{owners: map[int32]*owner.Partition{}, next: map[int32]int64{}}
		follow := func(c *Config) { c.Strict = f }
		m := r.begin(set, follow)
		producer, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.TransactionalID(r.names.Group+"-app"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		defer producer.Close()
		reached := func(what string) {
			t.Helper()
			for id := range int32(rigPartitions) {
				input, err := m.InputEnd(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				eventually(t, what, func() bool {
					f.mu.Lock()
					p := f.owners[id]
					f.mu.Unlock()
					if p == nil {
						return false
					}
					far, err := p.Progress(t.Context())
					if err != nil || far.Input < input {
						return false
					}
					loop, err := m.LoopEnd(t.Context(), id) // what was forwarded is before this one
					if err != nil {
						t.Fatal(err)
					}
					eventually(t, "what is forwarded is counted", func() bool {
						far, err = p.Progress(t.Context())
						return err == nil && far.Loop >= loop
					})
					return true
				})
			}
		}
		reached("nothing is there yet")
		for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit, kgo.TryAbort} {
			if err := producer.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			for id := range int32(rigPartitions) {
				value := []byte(`{"api":"a.b","uid":"` + uids(40)[id*7] + `","ip":"192.0.2.1"}`)
				if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: r.names.Events, Partition: id, Value: value}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			if i == 2 {
				reached("a transaction is open")
			}
			if err := producer.EndTransaction(t.Context(), end); err != nil {
				t.Fatal(err)
			}
			reached("the end is a marker")
			if i == 1 { // the next owner begins behind it
				m.end(t)
				m = r.begin(set, follow)
				reached("the next owner begins at a marker")
			}
		}
		eventually(t, "what was not taken back is counted", func() bool {
			x, err := m.Explain([]event.Dim{{Name: "ip", Value: "192.0.2.1"}}, "", now())
			return err == nil && len(x) > 0 && x[0].Count == 2*rigPartitions*event.One
		})
	})
}
