package script

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

// BenchmarkCommand measures a script's time by Redis' own account, without the work before and after it: the median
// of batches, in turn with the others.
func BenchmarkCommand(b *testing.B) {
	client := redis.NewClient(&redis.Options{Addr: servers.StartRedis(b).Addr()})
	b.Cleanup(func() { client.Close() })
	sha := client.ScriptLoad(b.Context(), "local n = redis.call('INCR', KEYS[1])\nredis.call('EXPIRE', KEYS[1], ARGV[2])\nreturn n <= tonumber(ARGV[1]) and 1 or 0").Val()
	asking := []batch{&bareBatch{sha}}
	for _, kind := range []string{"window", "bucket"} {
		asking = append(asking, newPermitBatch(b, client, kind))
	}
	times := make([][]float64, len(asking))
	settling := make([][]float64, len(asking))
	for b.Loop() {
		for i, one := range asking {
			pipe := client.Pipeline()
			one.ask(b, pipe)
			before := commandTime(b, client)
			cmds, err := pipe.Exec(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			took := commandTime(b, client)
			times[i] = append(times[i], (took-before)/batchSize)
			one.answered(b, cmds)
			settling[i] = append(settling[i], (commandTime(b, client)-took)/batchSize)
		}
	}
	for i, name := range []string{"bare", "window", "bucket"} {
		for _, list := range [][]float64{times[i], settling[i]} {
			slices.Sort(list)
		}
		b.ReportMetric(times[i][len(times[i])/2], name+"-µs")
		if i > 0 {
			b.ReportMetric(settling[i][len(settling[i])/2], name+"-settled-µs")
		}
	}
	b.ReportMetric(0, "ns/op")
}

const batchSize = 100

// batch is a number of questions.
type batch interface {
	ask(b *testing.B, p redis.Pipeliner)
	answered(b *testing.B, cmds []redis.Cmder)
}

type bareBatch struct{ sha string }

func (x *bareBatch) ask(b *testing.B, p redis.Pipeliner) {
	for i := range batchSize {
		p.EvalSha(b.Context(), x.sha, []string{fmt.Sprint("bare", i)}, 1_000_000, 60)
	}
}

func (x *bareBatch) answered(*testing.B, []redis.Cmder) {}

// permitBatch asks for keys that are known, and settles what it gets.
type permitBatch struct {
	*Shards
	want protocol.Want
	next int64
	n    int
	ids  []string
}

func newPermitBatch(b *testing.B, client *redis.Client, kind string) *permitBatch {
	x := &permitBatch{Shards: &Shards{Client: client, Prefix: "command" + kind, Shards: 1, Partitions: 1}, want: benchWant(kind)}
	now := event.FromTime(time.Now())
	first := x.apply(b, protocol.Record{Version: 1})
	x.apply(b, protocol.Record{Grants: &protocol.Grants{Run: first.Run, Life: first.Life, Until: now + event.Day}})
	return x
}

func (x *permitBatch) apply(b *testing.B, records ...protocol.Record) protocol.Applied {
	a, err := x.Apply(b.Context(), &protocol.Batch{Of: 1, Start: x.next, Next: x.next + int64(len(records)), Beat: event.FromTime(time.Now()), Records: records})
	if err != nil || !a.OK {
		b.Fatal(a, err)
	}
	x.next = a.Reached
	return a
}

func (x *permitBatch) ask(b *testing.B, p redis.Pipeliner) {
	process, err := x.process(b.Context(), 0)
	if err != nil {
		b.Fatal(err)
	}
	x.ids = x.ids[:0]
	for i := range batchSize {
		x.n++
		id := fmt.Sprintf("1h0s8yfwvzd9o-%08x", x.n)
		x.ids = append(x.ids, id)
		q := protocol.Ask{Key: fmt.Sprint("uid=", i), IDs: []string{id}, Before: event.MaxTime, Version: 1, Wants: []protocol.Want{x.want}}
		p.EvalSha(b.Context(), process.shas[opAdmit], []string{x.meta(0)}, &question{ask: q, name: "name", json: process.json})
	}
}

func (x *permitBatch) answered(b *testing.B, cmds []redis.Cmder) {
	var records []protocol.Record
	for i, cmd := range cmds {
		a, err := answerOf(&protocol.Ask{IDs: x.ids[i : i+1]}, []any{cmd.(*redis.Cmd).Val()})
		if err != nil || a.Status != protocol.Granted {
			b.Fatalf("%+v, %v", a, err)
		}
		level := &protocol.Level{Key: fmt.Sprint("uid=", i), Seq: int64(x.n), Latest: a.At, Settles: []string{x.ids[i]}}
		level.Sections = []protocol.Section{{Name: x.want.Name, Level: 5, Steps: []protocol.Step{{Until: a.At + event.Hour, Amount: event.One}}}}
		if x.want.Kind == protocol.Bucket {
			level.Sections[0].Steps = nil
		}
		records = append(records, protocol.Record{Level: level})
	}
	x.apply(b, records...)
}

func benchWant(kind string) protocol.Want {
	l := protocol.Limit{Name: "f00dcafef00dcafe", Grain: event.Hour, Keeps: event.Hour, Hold: 30 * event.Second}
	if kind == "bucket" {
		l = protocol.Limit{Name: "f00dcafef00dcafe", Kind: protocol.Bucket, Rate: 1000 * event.One, Per: event.Second, Hold: 30 * event.Second}
	}
	return protocol.Want{Limit: l, Amount: event.One, Threshold: 1_000_000 * event.One}
}

// commandTime reads the µs that EVALSHA has taken so far.
func commandTime(b *testing.B, client *redis.Client) (us float64) {
	info, err := client.Info(b.Context(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	var calls float64
	if _, err := fmt.Sscanf(infoField(info, "cmdstat_evalsha"), "calls=%f,usec=%f,", &calls, &us); err != nil {
		return 0
	}
	return us
}
