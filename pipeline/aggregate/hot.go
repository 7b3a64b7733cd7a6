package aggregate

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
)

// Hot keys. More partitions do not help against a key that takes much of one, and it slows every
// key in the same partition. So operators can see it: on request (package ask), and in the log.
// Metrics never name it, because a label must not hold a key.

const (
	// skewed is the multiple of the others' mean from which a partition is logged.
	skewed = 3

	hotEvery  = time.Second       // between two checks
	hotQuiet  = event.Minute      // between two log lines about the same partition
	hotWarmup = 10 * event.Second // after a takeover, before the first line
)

// watchHeat makes the sketches decay, keeps the partitions' rates as metrics, and logs hot keys,
// until ctx ends.
func (a *watching) watchHeat(ctx context.Context) {
	judge := heatJudge{share: a.cfg.HotShare, rate: a.cfg.HotRate, names: a.cfg.LogHotKeys}
	tick := time.NewTicker(hotEvery)
	defer tick.Stop()
	var last []ask.Heat
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		at := now()
		list := ask.Heats(asked{a.instance}.Owned(), at)
		a.metrics.heats(list, last)
		last = list
		for _, line := range judge.lines(at, list) {
			a.log.Warn(line.what, line.args...)
		}
	}
}

// heats shows the partitions' rates, in place of those shown last.
func (m *metrics) heats(list, last []ask.Heat) {
	for _, h := range last {
		if !slices.ContainsFunc(list, func(now ask.Heat) bool { return now.Partition == h.Partition }) {
			m.eventRates.DeleteLabelValues(strconv.Itoa(int(h.Partition)))
		}
	}
	for _, h := range list {
		m.eventRates.WithLabelValues(strconv.Itoa(int(h.Partition))).Set(ask.Round(h.Rate, 10))
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
func (j *heatJudge) lines(at event.Micros, list []ask.Heat) []heatLine {
	if j.owned == nil {
		j.owned, j.said = map[int32]event.Micros{}, map[int32]event.Micros{}
	}
	here := map[int32]bool{}
	var sum float64
	for _, h := range list {
		here[h.Partition] = true
		if _, ok := j.owned[h.Partition]; !ok {
			j.owned[h.Partition] = at
		}
		sum += h.Rate
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
		if last, ok := j.said[h.Partition]; at-j.owned[h.Partition] < hotWarmup || ok && at-last < hotQuiet {
			continue
		}
		line, ok := j.line(h, sum, len(list))
		if ok {
			j.said[h.Partition] = at
			lines = append(lines, line)
		}
	}
	return lines
}

func (j *heatJudge) line(h ask.Heat, sum float64, partitions int) (heatLine, bool) {
	if len(h.Keys) > 0 && h.Keys[0].Share >= j.share && h.Keys[0].Rate >= j.rate {
		k := h.Keys[0]
		args := []any{"partition", h.Partition, "share", ask.Round(k.Share, 1000), "events_per_second", ask.Round(k.Rate, 1), "dimensions", dimensions(k.Text)}
		if j.names {
			args = append(args, "key", string(k.Text))
		}
		return heatLine{"one key takes much of a partition; tallygate hot-keys names it", args}, true
	}
	if partitions < 2 || h.Rate < j.rate {
		return heatLine{}, false
	}
	others := (sum - h.Rate) / float64(partitions-1)
	if h.Rate < skewed*others {
		return heatLine{}, false
	}
	return heatLine{"a partition gets far more events than this instance's other partitions; see tallygate hot-keys",
		[]any{"partition", h.Partition, "events_per_second", ask.Round(h.Rate, 1), "mean_of_the_others", ask.Round(others, 1)}}, true
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
