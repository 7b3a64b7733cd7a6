package watch

import (
	"slices"
	"strconv"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/health"
)

func label(partition int32) string { return strconv.Itoa(int(partition)) }

// spread is a histogram over the latest minutes, of programs that only say what they have seen since their
// start.
type spread struct{ kept []summed }

// summed is the histogram of all programs at a moment.
type summed struct {
	at      time.Time
	count   uint64
	buckets []api.Bucket
}

const (
	spreadOver  = 5 * time.Minute
	spreadEvery = 5 * time.Second
)

// take enters what the programs say now. After a restart of one it begins anew.
func (s *spread) take(now time.Time, samples []api.Sample) {
	is := summed{at: now}
	byBound := map[float64]uint64{}
	for _, sample := range samples {
		is.count += sample.Count
		for _, b := range sample.Buckets {
			byBound[b.Le] += b.Count
		}
	}
	for le, n := range byBound {
		is.buckets = append(is.buckets, api.Bucket{Le: le, Count: n})
	}
	slices.SortFunc(is.buckets, func(a, b api.Bucket) int {
		if a.Le < b.Le {
			return -1
		}
		return 1
	})
	n := len(s.kept)
	switch {
	case n > 0 && is.count < s.kept[n-1].count:
		s.kept = []summed{is}
	case n > 1 && now.Sub(s.kept[n-2].at) < spreadEvery:
		s.kept[n-1] = is
	default:
		s.kept = append(s.kept, is)
	}
	for len(s.kept) > 2 && now.Sub(s.kept[1].at) > spreadOver {
		s.kept = s.kept[1:]
	}
}

// quantile returns one of the latest minutes, by the bounds of the buckets, linear between them. Without any
// observation in them it is 0.
func (s *spread) quantile(now time.Time, q float64) time.Duration {
	n := len(s.kept)
	if n < 2 || now.Sub(s.kept[n-1].at) > spreadOver {
		return 0
	}
	first, last := &s.kept[0], &s.kept[n-1]
	total := last.count - first.count
	if total == 0 {
		return 0
	}
	rank := q * float64(total)
	below, from := 0.0, 0.0
	for _, b := range last.buckets {
		upTo := float64(b.Count - first.at64(b.Le))
		if upTo >= rank {
			share := 1.0
			if upTo > below {
				share = (rank - below) / (upTo - below)
			}
			return health.Seconds(from + (b.Le-from)*share)
		}
		below, from = upTo, b.Le
	}
	return health.Seconds(from) // beyond the last bound
}

func (s *summed) at64(le float64) uint64 {
	for _, b := range s.buckets {
		if b.Le == le {
			return b.Count
		}
	}
	return 0
}
