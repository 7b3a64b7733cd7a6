package aggregate

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/hotkeys"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/event"
)

// Hot keys: what takes much of a partition cannot be helped by more partitions, and slows all
// that share one with it. So it is to be seen: by those who ask (http_hot.go), and in the log.
// Never in metrics, whose labels are no place for keys.

const (
	// shownShare is from which share on a key is shown to those who ask.
	shownShare = 0.005

	// skewed is how many times the mean of the others a partition must have to be told of.
	skewed = 3

	hotEvery  = time.Second  // between two looks
	hotQuiet  = event.Minute // between two lines about the same partition
	hotWarmup = 10 * event.Second
)

// heat is what one partition has had lately.
type heat struct {
	partition int32
	rate      float64       // events a second, one a key
	keys      []hotkeys.Key // with at least the share that was asked for, the hottest first
}

// heatOf looks at a partition's sketch.
func heatOf(p *owner.Partition, at event.Micros, share float64) (h heat) {
	p.View(func(s *shard.Shard, _ *owner.Rules) {
		hot := s.Hot()
		hot.Tick(at)
		h = heat{p.ID(), hot.Rate(at), hot.Hot(at, share)}
	})
	return h
}

// heats looks at every partition that this instance owns, in order.
func (a *instance) heats(at event.Micros, share float64) []heat {
	parts := slices.DeleteFunc(a.owned(), func(p *owner.Partition) bool { return !p.Live() })
	slices.SortFunc(parts, func(x, y *owner.Partition) int { return cmp.Compare(x.ID(), y.ID()) })
	list := make([]heat, len(parts))
	for i, p := range parts {
		list[i] = heatOf(p, at, share)
	}
	return list
}

// watchHeat lets the sketches decay, keeps the partitions' rates as metrics, and logs what
// is hot, until ctx ends.
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

// heatJudge decides what is worth a line in the log.
type heatJudge struct {
	share, rate float64
	names       bool // the log may have keys

	owned map[int32]event.Micros // since when
	said  map[int32]event.Micros // the last line about a partition
}

type heatLine struct {
	what string
	args []any
}

// lines returns at most one line a partition, and one a minute. What was taken over just now
// is left alone: its first seconds, when it catches up, tell nothing.
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

// dimensions returns what a key is made of, without saying whose it is.
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

// round cuts a number for people to its first places: to whole ones of 1/parts.
func round(f, parts float64) float64 { return float64(int64(f*parts+0.5)) / parts }
