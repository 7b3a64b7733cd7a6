package doctor

import (
	"context"
	"errors"
	"strings"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/kafkaconn/clients"
	intake "github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// sampled is how many of a partition's last records are read.
const sampled = 200

// sample is what was found in the last events.
type sample struct {
	decoder event.Decoder
	headers []event.Header
	events  []event.Event
	count   int
	ahead   uint64
}

func (s *sample) record(rec *kafkalog.Record) error {
	s.headers = intake.CloudEvents(s.headers[:0], rec.Headers)
	s.events, _ = s.decoder.Decode(rec.Value, s.headers, rec.Key, s.events[:0]) // what is malformed is a dead letter, and told
	s.count += len(s.events)
	for i := range s.events {
		if event.TooFarAhead(s.events[i].Time, intake.BrokerTime(rec)) {
			s.ahead++
		}
	}
	return nil
}

// checkEvents looks at the last events for what looks like a mistake of their producers: such events are
// valid, and no rule counts them as meant.
func (e *kafkaSide) checkEvents(ctx context.Context) outcome {
	if !e.exists(e.names.Events) {
		return found(skip("events", "there is no topic %s yet", e.names.Events))
	}
	var s sample
	if err := s.read(ctx, e); refused(err) || err != nil && strings.Contains(err.Error(), "AUTHORIZATION_FAILED") {
		return found(warn("events", "see acls", "%s was not looked at: %v", e.names.Events, err))
	} else if err != nil {
		return found(warn("events", "", "%s was not looked at: %v", e.names.Events, err))
	}
	if s.count == 0 {
		return found(skip("events", "there are none in the last records of %s", e.names.Events))
	}
	suspects := s.decoder.Suspects
	suspects.TimeAhead += s.ahead
	by := suspects.ByReason()
	var results []Result
	for _, reason := range event.SuspectReasons {
		if n := by[reason]; n > 0 {
			what, fix, _ := strings.Cut(event.SuspectAdvice(reason), ": ")
			results = append(results, warn("events", fix, "%d of the last %d look like a mistake (%s): %s", n, s.count, reason, what))
		}
	}
	if len(results) > 0 {
		return found(results...)
	}
	return found(ok("events", "the last %d look right", s.count))
}

// read reads the last records of each partition.
func (s *sample) read(ctx context.Context, e *kafkaSide) error {
	logs, stop, err := kafkalog.Open(clients.Log(e.cfg.Kafka, "tallygate-doctor"))
	if err != nil {
		return err
	}
	defer stop()
	for p := range e.layout.Partitions {
		first, err := e.client.GetOffset(e.names.Events, p, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		end, err := e.client.GetOffset(e.names.Events, p, sarama.OffsetNewest)
		if err != nil {
			return err
		}
		var unreadable *kafkalog.Unreadable // an aggregator passes over it, too
		if err := logs.Scan(ctx, e.names.Events, [16]byte{}, p, max(first, end-sampled), end, s.record); err != nil && !errors.As(err, &unreadable) {
			return err
		}
	}
	return nil
}
