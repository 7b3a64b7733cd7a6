package aggregator

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// meeting is a hash in Redis in which each aggregator of a group leaves its name: those that are not there use another
// Redis, whatever addresses they have been given. It needs no right that the publisher lacks, and a Redis that
// has lost its memory has all names again after a few seconds.
type meeting struct {
	redis  redis.UniversalClient
	prefix string
}

const (
	metWithin    = time.Minute // a name is left every ten seconds
	meetingKeeps = time.Hour   // names of programs that have ended
)

func (m *meeting) key() string { return "{" + m.prefix + ":0}:aggregators" }

// Meet leaves own there, and returns the names of those who were there of late, by Redis' clock.
func (m *meeting) Meet(ctx context.Context, own string) (met []string, err error) {
	now, err := m.redis.Time(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("meet other aggregators in Redis: %w", err)
	}
	if err := m.redis.HSet(ctx, m.key(), own, now.UnixMilli()).Err(); err != nil {
		return nil, fmt.Errorf("meet other aggregators in Redis: %w", err)
	}
	all, err := m.redis.HGetAll(ctx, m.key()).Result()
	if err != nil {
		return nil, fmt.Errorf("meet other aggregators in Redis: %w", err)
	}
	var old []string
	for name, text := range all {
		ms, _ := strconv.ParseInt(text, 10, 64) // what is no time was long ago
		switch age := now.Sub(time.UnixMilli(ms)); {
		case age < metWithin:
			met = append(met, name)
		case age > meetingKeeps:
			old = append(old, name)
		}
	}
	if len(old) > 0 {
		if err := m.redis.HDel(ctx, m.key(), old...).Err(); err != nil {
			return nil, fmt.Errorf("forget aggregators that ended: %w", err)
		}
	}
	return met, nil
}
