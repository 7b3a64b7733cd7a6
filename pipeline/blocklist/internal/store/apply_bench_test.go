package store_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/store"
)

// BenchmarkApply measures Redis' work for a verdict, in batches of some sizes, of new and of known keys. The CPU is
// that of Redis' process, which other load on the machine does not change much.
func BenchmarkApply(b *testing.B) {
	for _, size := range []int{1, 10, 100, 500} {
		for _, keys := range []string{"new", "known"} {
			b.Run(fmt.Sprintf("%d-%s", size, keys), func(b *testing.B) {
				client := rig.Dial(b, rig.RealRedis(b))
				s := rig.NewStore(b, client)
				next, before := int64(0), cpuOf(b, client)
				for b.Loop() {
					bt := store.Batch{Partition: 0, Start: next, Next: next + int64(size), Applied: 1}
					for i := range size {
						uid := next + int64(i)
						if keys == "known" {
							uid = int64(i)
						}
						r := rig.Record(rig.Block(fmt.Sprint(uid), next+int64(i)+1, time.Hour))
						r.Offset = next + int64(i)
						bt.Records = append(bt.Records, r)
					}
					if _, ok, err := s.Apply(b.Context(), bt); err != nil || !ok {
						b.Fatal(ok, err)
					}
					next += int64(size)
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(next), "µs/verdict")
				b.ReportMetric((cpuOf(b, client)-before).Seconds()*1e6/float64(next), "redis-µs/verdict")
			})
		}
	}
}

// cpuOf reads the CPU time of Redis' process.
func cpuOf(b *testing.B, client redis.UniversalClient) (sum time.Duration) {
	b.Helper()
	info, err := client.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.SplitSeq(info, "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		if name != "used_cpu_user" && name != "used_cpu_sys" {
			continue
		}
		s, err := strconv.ParseFloat(value, 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(s * float64(time.Second))
	}
	return sum
}
