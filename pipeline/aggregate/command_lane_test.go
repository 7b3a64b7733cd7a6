package aggregate

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
)

func ipKey(ip string) []event.Dim { return []event.Dim{{Name: "ip", Value: ip}} }

// partitionOfIP owns the keys of an address.
func partitionOfIP(ip string) int32 {
	return event.Partition([]byte(event.FormatKey(ipKey(ip))), rigPartitions)
}

// A command does not wait for a partition's loop. It once stood behind everything that other
// partitions had forwarded, and was answered with 504. Here nothing of the loop moves: a
// transaction is open in it.
func TestCommandsPassWhatOthersForward(t *testing.T) {
	onKafka(t, func(t *testing.T, r *rig) {
		const ip = "192.0.2.1"
		m := r.begin(compile(t, byIPAndUID))
		target := partitionOfIP(ip)
		c, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.TransactionalID(r.names.Group+"-other"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: r.names.Loop, Partition: target, Key: []byte("\x00none")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		var events []*event.Event
		for i := range 40 {
			e := hit(fmt.Sprintf("u%d", i), "a")
			e.IP = netip.MustParseAddr(ip)
			events = append(events, e)
		}
		r.emit(events...)
		eventually(t, "the users are counted", func() bool { return r.count("u39", "per-year", m) == event.One })
		here := 0
		for _, e := range events {
			if event.Partition([]byte(e.UID), rigPartitions) == target {
				here++
			}
		}
		eventually(t, "of the address is counted what needed no forward", func() bool {
			return r.countIP(ip, "by-ip", m) == event.Decimal(here)*event.One
		})
		for _, cmd := range []ask.Command{{Name: "block", For: time.Hour}, {Name: "unblock"}, {Name: "reset"}, {Name: "exempt", For: time.Hour}, {Name: "forget"}} {
			cmd.Key, cmd.Reason, cmd.By = ipKey(ip), "a test", "tester"
			if _, err := m.Command(within(t, 15*time.Second), cmd); err != nil {
				t.Fatalf("%s: %v", cmd.Name, err)
			}
		}
		if got := r.countIP(ip, "by-ip", m); got != 0 {
			t.Errorf("after reset and forget the address has counted %v", got)
		}
		if err := c.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
		eventually(t, "what had waited is counted, once", func() bool {
			return r.countIP(ip, "by-ip", m) == event.Decimal(len(events)-here)*event.One
		})
		r.crash(m)
		last := hit("u0", "a")
		last.IP = netip.MustParseAddr(ip)
		r.emit(last)
		eventually(t, "after a crash it is so, with one more", func() bool {
			return r.countIP(ip, "by-ip", m) == event.Decimal(len(events)-here+1)*event.One
		})
	})
}

// A flood from one address is forwarded to one partition. A command on that address is answered
// while the flood is counted; one that stands behind it, as those of older programs do, is not.
// TALLYGATE_TEST_FLOOD=400000 sets the size of the flood.
func TestCommandsInAFlood(t *testing.T) {
	n := sized(t, "TALLYGATE_TEST_FLOOD", 5_000)
	onKafka(t, func(t *testing.T, r *rig) {
		const ip = "192.0.2.1"
		m := r.begin(compile(t, byIPAndUID), func(c *Config) { c.CheckpointEvery = time.Second })
		r.flood(ip, n)
		p := m.partition(partitionOfIP(ip))
		other := netip.MustParseAddr(ip).Next()
		for partitionOfIP(other.String()) != p.ID() {
			other = other.Next()
		}
		behind := ipKey(other.String())
		eventually(t, "the flood is forwarded", func() bool { return r.countIP(ip, "by-ip", m) > 0 })
		began := time.Now()
		older, err := json.Marshal(shard.CommandRecord{ID: "X", Command: "block", Key: event.FormatKey(behind), For: event.Hour, Reason: "a test", By: "tester"})
		if err != nil {
			t.Fatal(err)
		}
		r.emitTo(r.names.Loop, p.ID(), loopCommand+string(older))
		late := p.Lateness(began)
		if _, err := m.Command(within(t, 20*time.Second), ask.Command{Name: "block", Key: ipKey(ip), For: time.Hour, Reason: "a test"}); err != nil {
			t.Fatal(err)
		}
		t.Logf("answered after %v; %s when it was given, %s afterwards", time.Since(began), late, p.Lateness(time.Now()))
		eventually(t, "the one behind the flood is carried out", func() bool {
			e, err := m.Explain(behind, "", now())
			return err == nil && slices.ContainsFunc(e, func(e rules.Explanation) bool { return e.Verdict != nil })
		})
		t.Logf("the one behind the flood was carried out after %v", time.Since(began))
		eventually(t, "all is counted, once", func() bool { return r.countIP(ip, "by-ip", m) == event.Decimal(n)*event.One })
		t.Logf("all was counted after %v", time.Since(began))
	})
}

// flood emits n events of an address, of many users, a hundred per record.
func (r *rig) flood(ip string, n int) {
	r.t.Helper()
	var msgs []*sarama.ProducerMessage
	for i := 0; i < n; i += 100 {
		var list []string
		for j := i; j < min(n, i+100); j++ {
			e := hit(fmt.Sprintf("u%d", j%1000), "a")
			e.IP = netip.MustParseAddr(ip)
			list = append(list, string(event.AppendJSON(nil, e)))
		}
		msgs = append(msgs, &sarama.ProducerMessage{Topic: r.names.Events, Partition: int32(i / 100 % rigPartitions), Value: sarama.StringEncoder("[" + strings.Join(list, ",") + "]")})
	}
	for part := range slices.Chunk(msgs, 200) { // otherwise a batch is larger than the topic takes
		r.sendAll(part)
	}
}

// sized is a test's size: from the environment, or the default.
func sized(t *testing.T, env string, def int) int {
	t.Helper()
	text := os.Getenv(env)
	if text == "" {
		return def
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a number", env, text)
	}
	return n
}

// within is a context that ends after a while.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
