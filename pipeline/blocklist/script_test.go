package blocklist

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

func testStore(t *testing.T, client redis.UniversalClient) *store {
	return &store{
		client: client, prefix: "tallygate", partitions: 1, shards: 1, streamLen: 1000, grace: event.Hour, beatMillis: 1 << 40,
		bad: func(r Record, err error) { t.Errorf("record at offset %d: %v", r.Offset, err) },
	}
}

// put applies records at the offset that Redis has reached.
func put(t *testing.T, s *store, records ...Record) {
	t.Helper()
	start, _, err := s.apply(t.Context(), batch{start: noOffset})
	if err != nil {
		t.Fatal(err)
	}
	next := start + max(int64(len(records)), 1)
	if reached, ok, err := s.apply(t.Context(), batch{start: start, next: next, records: records}); err != nil || !ok || reached != next {
		t.Fatalf("apply [%d, %d): reached %d, %v, %v", start, next, reached, ok, err)
	}
}

// contents returns the verdicts of the hash and checks that the sorted set has the same keys.
func contents(t *testing.T, client redis.UniversalClient) []string {
	t.Helper()
	k := shardKeys("tallygate", 0)
	var hash *redis.MapStringStringCmd
	var expiry *redis.StringSliceCmd
	_, err := client.TxPipelined(t.Context(), func(p redis.Pipeliner) error { // both at one moment: somebody may be writing
		hash, expiry = p.HGetAll(t.Context(), k.verdicts), p.ZRange(t.Context(), k.expiry, 0, -1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var lines, names []string
	for name, value := range hash.Val() {
		if name[0] == metaPrefix[0] {
			continue
		}
		v, err := verdict.Parse([]byte(value))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
		lines = append(lines, fmt.Sprintf("%s %s %d", name, v.State, v.Seq))
	}
	slices.Sort(names)
	slices.Sort(lines)
	scored := expiry.Val()
	if slices.Sort(scored); !slices.Equal(names, scored) {
		t.Errorf("the hash has %v, the sorted set %v", names, scored)
	}
	return lines
}

// checkStream checks that the stream's entries follow each other, up to the meta's place.
func checkStream(t *testing.T, client redis.UniversalClient) []redis.XMessage {
	t.Helper()
	k := shardKeys("tallygate", 0)
	entries, err := client.XRange(t.Context(), k.changes, "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := readMeta(t.Context(), client, k)
	if err != nil {
		t.Fatal(err)
	}
	at := place{epoch: m.epoch}
	for _, e := range entries {
		if p, _ := e.Values["p"].(string); !at.follows(e.ID, p) {
			t.Errorf("entry %s with predecessor %q does not follow %s with stamp %q", e.ID, p, at.id(), at.stamp)
		}
		at.n++
		at.stamp, _ = e.Values["s"].(string)
	}
	if at != m.place {
		t.Errorf("the stream ends at %v, the meta says %v", at, m.place)
	}
	return entries
}

func TestTheScriptAppliesOnlyWhatComesNext(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := testStore(t, client)
		for i, c := range []struct {
			start, next, reached int64
			ok                   bool
		}{
			{5, 6, 0, false}, {0, 3, 3, true}, {0, 3, 3, false}, {2, 9, 3, false}, {4, 5, 3, false}, {3, 3, 3, true}, {3, 8, 8, true},
		} {
			reached, ok, err := s.apply(t.Context(), batch{start: c.start, next: c.next, records: []Record{record(block(fmt.Sprint(i), 1, time.Hour))}})
			if err != nil || reached != c.reached || ok != c.ok {
				t.Errorf("[%d, %d): reached %d, applied %v, %v, want %d, %v", c.start, c.next, reached, ok, err, c.reached, c.ok)
			}
		}
		want := []string{"uid=1|r block 1", "uid=5|r block 1", "uid=6|r block 1"}
		if got := contents(t, client); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		checkStream(t, client)
	})
}

func TestTheScriptKeepsTheNewest(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := testStore(t, client)
		for i, step := range []struct {
			record Record
			want   string
		}{
			{record(block("1", 5, time.Hour)), "uid=1|r block 5"},
			{record(block("1", 4, time.Hour)), "uid=1|r block 5"},
			{record(block("1", 5, 2*time.Hour)), "uid=1|r block 5"},
			{record(clearing("1", 6)), "uid=1|r clear 6"},
			{record(block("1", 5, time.Hour)), "uid=1|r clear 6"}, // it doesn't come back
			{record(block("1", 7, time.Hour)), "uid=1|r block 7"},
			{tombstone(block("1", 0, 0)), ""},
			{tombstone(block("1", 0, 0)), ""},
			{record(block("1", 1, -2*time.Hour)), ""}, // ran out long ago
		} {
			put(t, s, step.record)
			got := ""
			for _, line := range contents(t, client) {
				got += line
			}
			if got != step.want {
				t.Errorf("step %d: %q, want %q", i, got, step.want)
			}
		}
		if n := len(checkStream(t, client)); n != 5 { // four changes, and one heartbeat of the first batch
			t.Errorf("%d entries in the stream, want 5", n)
		}
	})
}

func TestAClearStaysAsLongAsItsBlockWouldHave(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := testStore(t, client)
		s.grace = event.Second
		blocked := block("1", 5, time.Hour)
		put(t, s, record(blocked))
		ended := clearing("1", 6)
		ended.Until -= event.Minute // a minute ago: on its own it would be gone
		put(t, s, record(ended))
		if got := contents(t, client); !slices.Equal(got, []string{"uid=1|r clear 6"}) {
			t.Errorf("%v, want the clear", got)
		}
		score, err := client.ZScore(t.Context(), "{tallygate:0}:expiry", "uid=1|r").Result()
		if want := float64(blocked.Until + event.Second); err != nil || score != want {
			t.Errorf("it stays until %f, %v, want %f", score, err, want)
		}
	})
}

func TestTheScriptRemovesWhatRanOutBitByBit(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s := testStore(t, client)
		s.grace = 0
		var records []Record
		for i := range 3 * expiredPerBatch {
			records = append(records, record(block(fmt.Sprint(i), 1, 300*time.Millisecond)))
		}
		put(t, s, append(records, record(block("stays", 1, time.Hour)))...)
		if got := len(contents(t, client)); got != len(records)+1 {
			t.Fatalf("%d verdicts, want %d", got, len(records)+1)
		}
		eventually(t, "all but one are gone", func() bool {
			put(t, s)
			return slices.Equal(contents(t, client), []string{"uid=stays|r block 1"})
		})
		checkStream(t, client)
	})
}

func TestANewEpochIsAlwaysGreater(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		s, k := testStore(t, client), shardKeys("tallygate", 0)
		epoch := func() uint64 {
			m, found, err := readMeta(t.Context(), client, k)
			if err != nil || !found {
				t.Fatal(found, err)
			}
			return m.epoch
		}
		put(t, s, record(block("1", 1, time.Hour)))
		before := epoch()
		client.Del(t.Context(), k.verdicts) // the meta is lost, the stream is not
		put(t, s, record(block("1", 1, time.Hour)))
		if epoch() <= before {
			t.Errorf("epoch %d after %d", epoch(), before)
		}
		checkStream(t, client)

		future := fmt.Sprint(before + 1<<30) // a stranger, or a clock that was ahead
		client.XAdd(t.Context(), &redis.XAddArgs{Stream: k.changes, ID: future + "-7", Values: []string{"x", "y"}})
		put(t, s, record(block("2", 1, time.Hour)))
		if epoch() <= before+1<<30 {
			t.Errorf("epoch %d after %s", epoch(), future)
		}
		checkStream(t, client)
		client.Del(t.Context(), k.changes)
		put(t, s, record(block("3", 1, time.Hour)))
		want := []string{"uid=1|r block 1", "uid=2|r block 1", "uid=3|r block 1"}
		if got := contents(t, client); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

func TestARecordThatIsNoVerdictStopsNothing(t *testing.T) {
	s := testStore(t, dial(t, realRedis(t)))
	skipped := 0
	s.bad = func(Record, error) { skipped++ }
	put(t, s, Record{Key: []byte("uid=1|r"), Value: []byte("{")}, record(block("2", 1, time.Hour)))
	if got := contents(t, s.client); skipped != 1 || !slices.Equal(got, []string{"uid=2|r block 1"}) {
		t.Errorf("%v, %d skipped, want the second record and one skipped", got, skipped)
	}
}

func TestNothingIsHalfWrittenWithoutMemory(t *testing.T) {
	client := dial(t, realRedis(t))
	s := testStore(t, client)
	put(t, s, record(block("1", 1, time.Hour)))
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	defer client.ConfigSet(context.Background(), "maxmemory", "0")
	if _, _, err := s.apply(t.Context(), batch{start: 1, next: 2, records: []Record{record(block("2", 1, time.Hour))}}); err == nil {
		t.Error("no error without memory")
	}
	client.ConfigSet(t.Context(), "maxmemory", "0")
	checkStream(t, client)
	put(t, s, record(block("2", 1, time.Hour)))
	if got := contents(t, client); len(got) != 2 {
		t.Errorf("%v, want both", got)
	}
	checkStream(t, client)
}

// TestTwoFillAnEmptyRedisAtOnce: one publisher read the topic before a block was removed and one after, which
// therefore leaves the block and its removal out. When the first one's batch gets there first, the second must not
// go on with what it has: the removal would be lost.
func TestTwoFillAnEmptyRedisAtOnce(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		kafka, s := newBroker(t, 1), testStore(t, client)
		p, stop := kafka.publisher(client, nil)
		stop()
		defer p.cfg.Transport.CloseIdleConnections()
		second := newWorker(p, 0)
		if !second.ask(t.Context()) || second.reached != 0 {
			t.Fatalf("reached %d, want 0", second.reached)
		}

		_, end, early := kafka.write(0, record(block("1", 1, time.Hour)), record(block("2", 1, time.Hour)))
		if _, ok, err := s.apply(t.Context(), batch{start: 0, next: end, records: early}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		_, end, late := kafka.write(0, tombstone(block("1", 1, time.Hour)), record(block("3", 1, time.Hour)))
		second.write(t.Context(), written{records: slices.Concat(early[1:], late[1:]), end: end, partial: true})
		if !second.behind {
			t.Error("the second goes on as if it had been the only one")
		}
		if err := second.catchUp(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		want := []string{"uid=2|r block 1", "uid=3|r block 1"}
		if got := contents(t, client); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}
