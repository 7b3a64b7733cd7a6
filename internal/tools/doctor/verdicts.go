package doctor

import (
	"context"
	"errors"
	"maps"

	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/internal/run/kafkaconn/clients"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/verdict"
)

// mostOwn bounds the records of owners that may stand behind the offset in Redis until their partition counts as
// behind: publishers pass them with the next heartbeat.
const mostOwn = 10_000

// lastVerdicts returns the ends of the verdict topic without the records that owners keep for themselves there, such
// as grants of strict limits. They come all the time, and Redis has no word of them: each looked like a verdict that it
// lacked. What cannot be read stays as it is.
func (e *examination) lastVerdicts(ctx context.Context, topic string, is *health.Redis, ends map[int32]int64) map[int32]int64 {
	behind := map[int32]int64{} // what Redis has reached
	for i := range is.Shards {
		for p, at := range is.Shards[i].Reached {
			if at < ends[p] && ends[p]-at <= mostOwn {
				behind[p] = at
			}
		}
	}
	if len(behind) == 0 {
		return ends
	}
	logs, stop, err := kafkalog.Open(clients.Log(e.cfg.Kafka, "tallygate-doctor"))
	if err != nil {
		return ends
	}
	defer stop()
	partitions := e.layout.Topics[topic].Partitions
	starts, err := logs.Starts(ctx, topic, partitions)
	if err != nil {
		return ends
	}
	readable, err := logs.ReadableEnds(ctx, topic, partitions)
	if err != nil {
		return ends
	}
	ends = maps.Clone(ends)
	for p, at := range behind {
		err := logs.Scan(ctx, topic, [16]byte{}, p, max(at, starts[p]), min(ends[p], readable[p]), func(rec *kafkalog.Record) error {
			if !verdict.OwnRecord(rec.Key) {
				return errVerdict
			}
			return nil
		})
		if err == nil {
			ends[p] = at
		}
	}
	return ends
}

var errVerdict = errors.New("a verdict")
