package aggregate

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/hotkeys"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/event"
)

// Hot keys. More partitions do not help against a key that takes much of one, and it slows every
// key in the same partition. So operators can see it: on request (http_hot.go), and in the log.
// Metrics never name it, because a label must not hold a key.

const (
	// shownShare is the share of a partition from which a key is shown on request.
	shownShare = 0.005

	// skewed is how many times the mean of the others a partition needs to be logged.
	skewed = 3

	hotEvery  = time.Second       // between two checks
	hotQuiet  = event.Minute      // between two log lines about the same partition
	hotWarmup = 10 * event.Second // after a takeover, before the first line
)

// heat is the recent load of one partition.
type heat struct {
	partition int32
	rate      float64       // per second; an event counts once per key
	keys      []hotkeys.Key // with at least the requested share, the hottest first
}

// heatOf reads a partition's sketch.
func heatOf(p *owner.Partition, at event.Micros, share float64) (h heat) {
	p.View(func(s *shard.Shard, _ *owner.Rules) {
		hot := s.Hot()
		hot.Tick(at)
		h = heat{p.ID(), hot.Rate(at), hot.Hot(at, share)}
	})
	return h
}

// heats reads the sketches of all partitions that this instance owns, in order.
func (a *instance) heats(at event.Micros, share float64) []heat {
	parts := slices.DeleteFunc(a.owned(), func(p *owner.Partition) bool { return !p.Live() })
	slices.SortFunc(parts, func(x, y *owner.Partition) int { return cmp.Compare(x.ID(), y.ID()) })
	list := make([]heat, len(parts))
	for i, p := range parts {
		list[i] = heatOf(p, at, share)
	}
	return list
}

// watchHeat makes the sketches decay, keeps the partitions' rates as metrics, and logs hot keys,
// until ctx ends.
func (a *watching) watchHeat(ctx context.Context) {
	judge := heatJudge{share: a.cfg.HotShare, rate: a.cfg.HotRate, names: a.cfg.LogHotKeys}
	tick := time.NewTicker(hotEvery)
	defer tick.Stop()
	var last []heat
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		at := now()
		list := a.heats(at, shownShare)
		a.metrics.heats(list, last)
		last = list
		for _, line := range judge.lines(at, list) {
			a.log.Warn(line.what, line.args...)
		}
	}
}

// heats shows the partitions' rates, in place of those shown last.
func (m *metrics) heats(list, last []heat) {
	for _, h := range last {
		if !slices.ContainsFunc(list, func(now heat) bool { return now.partition == h.partition }) {
			m.eventRates.DeleteLabelValues(strconv.Itoa(int(h.partition)))
		}
	}
	for _, h := range list {
		m.eventRates.WithLabelValues(strconv.Itoa(int(h.partition))).Set(round(h.rate, 10))
	}
}

// heatJudge decides what to log.
type heatJudge struct {
	share, rate float64
	names       bool // keys may be logged

	owned map[int32]event.Micros // since when each partition is owned
	said  map[int32]event.Micros // when each was logged last
}

type heatLine struct {
	what string
	args []any
}

// lines returns at most one line per partition and minute. It skips partitions taken over just now:
// while they catch up, their rates mean nothing.
func (j *heatJudge) lines(at event.Micros, list []heat) []heatLine {
	if j.owned == nil {
		j.owned, j.said = map[int32]event.Micros{}, map[int32]event.Micros{}
	}
	here := map[int32]bool{}
	var sum float64
	for _, h := range list {
		here[h.partition] = true
		if _, ok := j.owned[h.partition]; !ok {
			j.owned[h.partition] = at
		}
		sum += h.rate
	}
	for id := range j.owned {
		if !here[id] {
			delete(j.owned, id)
		}
	}
	if j.share < 0 {
		return nil
	}
	var lines []heatLine
	for _, h := range list {
		if last, ok := j.said[h.partition]; at-j.owned[h.partition] < hotWarmup || ok && at-last < hotQuiet {
			continue
		}
		line, ok := j.line(h, sum, len(list))
		if ok {
			j.said[h.partition] = at
			lines = append(lines, line)
		}
	}
	return lines
}

func (j *heatJudge) line(h heat, sum float64, partitions int) (heatLine, bool) {
	if len(h.keys) > 0 && h.keys[0].Share >= j.share && h.keys[0].Rate >= j.rate {
		k := h.keys[0]
		args := []any{"partition", h.partition, "share", round(k.Share, 1000), "events_per_second", round(k.Rate, 1), "dimensions", dimensions(k.Text)}
		if j.names {
			args = append(args, "key", string(k.Text))
		}
		return heatLine{"one key takes much of a partition; tallygate hot-keys names it", args}, true
	}
	if partitions < 2 || h.rate < j.rate {
		return heatLine{}, false
	}
	others := (sum - h.rate) / float64(partitions-1)
	if h.rate < skewed*others {
		return heatLine{}, false
	}
	return heatLine{"a partition gets far more events than this instance's other partitions; see tallygate hot-keys",
		[]any{"partition", h.partition, "events_per_second", round(h.rate, 1), "mean_of_the_others", round(others, 1)}}, true
}

// dimensions returns the names of a key's dimensions, without their values.
func dimensions(text []byte) string {
	dims, err := event.ParseKey(text)
	if err != nil {
		return "" // every key's text was made by AppendKey
	}
	names := make([]string, len(dims))
	for i, d := range dims {
		names[i] = d.Name
	}
	return strings.Join(names, "&")
}

// round rounds a number for display to a multiple of 1/parts.
func round(f, parts float64) float64 { return float64(int64(f*parts+0.5)) / parts }
