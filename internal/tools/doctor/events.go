package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/run/kafkaconn/clients"
	counting "github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/rules"
)

// latestRecords bounds the records of the event topic that are looked at, over all partitions.
const latestRecords = 1000

// checkEvents looks at the latest events: whether their producers send them to the right partitions, and whether
// the rules, if there are some, count any. Nobody else tells: such events are no errors.
func (e *kafkaSide) checkEvents(ctx context.Context) outcome {
	topic := e.names.Events
	if !e.exists(topic) {
		return found(skip("events", "there is no %s yet", topic))
	}
	s := newSample(e.set, e.layout.Topics[topic].Partitions)
	if err := s.read(ctx, clients.Log(e.cfg.Kafka, e.cfg.Prefix+"-doctor"), topic); err != nil {
		return found(warn("events", "see acls", "the latest events cannot be read: %v", err))
	}
	if s.events+s.bad == 0 {
		return found(skip("events", "there is no event in %s", topic))
	}
	return found(worst(s.judge(topic, e.cfg.Rules))...)
}

// sample sums the latest events.
type sample struct {
	partitions int32
	set        *rules.Set     // nil: none
	matcher    *rules.Matcher // of set
	decoder    event.Decoder
	headers    []event.Header
	buffer     []event.Event

	events, bad, misplaced, unmatched, tooOld int
	ahead                                     uint64 // that a clock of the future made

	reasons, clients, names map[string]int // of what is bad, misplaced, unmatched
	place                   string         // of an event that is misplaced
}

func newSample(set *rules.Set, partitions int32) *sample {
	s := &sample{partitions: partitions, set: set, reasons: map[string]int{}, clients: map[string]int{}, names: map[string]int{}}
	if set != nil {
		s.matcher = set.NewMatcher()
	}
	return s
}

// read takes in the end of each partition.
func (s *sample) read(ctx context.Context, cfg kafkalog.Config, topic string) error {
	logs, stop, err := kafkalog.Open(cfg)
	if err != nil {
		return err
	}
	defer stop()
	starts, err := logs.Starts(ctx, topic, s.partitions)
	if err != nil {
		return err
	}
	ends, err := logs.ReadableEnds(ctx, topic, s.partitions)
	if err != nil {
		return err
	}
	each := int64(max(latestRecords/s.partitions, 10))
	for p := range s.partitions {
		from := max(starts[p], ends[p]-each)
		err := logs.Scan(ctx, topic, [16]byte{}, p, from, ends[p], func(rec *kafkalog.Record) error {
			s.record(topic, p, rec)
			return nil
		})
		if _, unreadable := errors.AsType[*kafkalog.Unreadable](err); err != nil && !unreadable { // of which aggregators tell
			return err
		}
	}
	return nil
}

func (s *sample) record(topic string, partition int32, rec *kafkalog.Record) {
	s.headers = counting.CloudEvents(s.headers[:0], rec.Headers)
	s.buffer, _ = s.decoder.Decode(rec.Value, s.headers, rec.Key, s.buffer[:0])
	for _, b := range s.decoder.Bad {
		s.bad++
		s.reasons[b.Reason]++
	}
	for i := range s.buffer {
		s.event(&s.buffer[i], counting.BrokerTime(rec))
	}
	if len(s.buffer) != 1 || len(s.decoder.Bad) > 0 || s.buffer[0].UID == "" { // a record of several events has no uid
		return
	}
	if int32(event.Murmur2(s.buffer[0].UID)&0x7fffffff)%s.partitions != partition {
		s.misplaced++
		s.clients[cmp.Or(counting.ClientOf(rec.Headers), "unnamed")]++
		s.place = fmt.Sprintf("%s/%d@%d", topic, partition, rec.Offset)
	}
}

func (s *sample) event(e *event.Event, broker event.Micros) {
	s.events++
	if event.TooFarAhead(e.Time, broker) {
		s.ahead++
	}
	if s.set == nil {
		return
	}
	at, counts := s.set.EventTime(e, broker)
	switch {
	case !counts:
		s.tooOld++
	case len(s.matcher.Match(e, at)) == 0:
		s.unmatched++
		s.names[strings.TrimSpace(e.API+" "+e.Outcome)]++
	}
}

// judge finds the mistakes of the events, if any.
func (s *sample) judge(topic, file string) (results []Result) {
	of := fmt.Sprintf("of the latest %s", words.Plural(s.events, "event"))
	if s.misplaced > 0 {
		results = append(results, warn("events", "give the producer a partitioner with murmur2 (docs/reference/events.md#partitions); "+s.place+" is such a record",
			"%s, %s in another partition than that of the uid (%s): that is forwarded, and loses its order", of, are(s.misplaced), most(s.clients)))
	}
	if s.bad > 0 {
		results = append(results, warn("events", "tallygate dead-letters shows them; mend their producer",
			"beside the latest %s, %s malformed (%s)", words.Plural(s.events, "event"), are(s.bad), most(s.reasons)))
	}
	if s.tooOld > 0 {
		results = append(results, warn("events", "mend the producer's clock, or raise max_lateness",
			"%s, %s older than max_lateness on arrival, and not counted", of, are(s.tooOld)))
	}
	results = append(results, s.suspects(of)...)
	if s.unmatched > 0 && s.unmatched+s.tooOld == s.events {
		results = append(results, warn("events", "tallygate trace --rules "+file+" kafka:"+topic+" says why",
			"%s, none matches a rule of %s (%s)", of, file, most(s.names)))
	}
	if len(results) > 0 {
		return results
	}
	if s.unmatched > 0 {
		return []Result{ok("events", "%s, %d without a rule of %s that counts it (%s)", of, s.unmatched, file, most(s.names))}
	}
	return []Result{ok("events", "%s, all are where they belong", of)}
}

// suspects are events that are valid, and that no rule counts as they are meant.
func (s *sample) suspects(of string) (results []Result) {
	noticed := s.decoder.Suspects
	noticed.TimeAhead += s.ahead
	by := noticed.ByReason()
	for _, reason := range event.SuspectReasons {
		if n := by[reason]; n > 0 {
			what, fix, _ := strings.Cut(event.SuspectAdvice(reason), ": ")
			results = append(results, warn("events", fix, "%s, %d %s like a mistake (%s): %s", of, n, looks(n), reason, what))
		}
	}
	return results
}

func looks(n uint64) string {
	if n == 1 {
		return "looks"
	}
	return "look"
}

func are(n int) string {
	if n == 1 {
		return "1 is"
	}
	return fmt.Sprintf("%d are", n)
}

// most lists the names of which there are most.
func most(of map[string]int) string {
	const few = 3
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b)) })
	var parts []string
	for _, name := range names[:min(few, len(names))] {
		parts = append(parts, fmt.Sprintf("%.64q: %d", name, of[name]))
	}
	if len(names) > few {
		parts = append(parts, "…")
	}
	return strings.Join(parts, ", ")
}
