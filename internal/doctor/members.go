package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

// settingsTold are the group's members by what they tell about settings that must be the same for all. Older members
// tell nothing.
type settingsTold struct{ redis, shards, times map[string][]string }

func (s *settingsTold) add(is *topics.Member, name string) {
	put := func(to *map[string][]string, value string) {
		if *to == nil {
			*to = map[string][]string{}
		}
		(*to)[value] = append((*to)[value], name)
	}
	if is.Redis != "" {
		put(&s.redis, is.Redis)
	}
	if is.Shards != 0 {
		put(&s.shards, strconv.Itoa(is.Shards))
	}
	if is.BrokerTime != "" {
		put(&s.times, is.BrokerTime)
	}
}

func (s *settingsTold) judge() (results []Result) {
	if len(s.redis) > 1 {
		without := s.redis[topics.WithoutRedis]
		results = append(results, fail("group", "start all aggregators with the same --redis",
			"%s without Redis, and the others have one: verdicts of the partitions of %s reach no enforcer", plural(len(without), "member"), some(without)))
	}
	for _, setting := range []struct {
		option string
		of     map[string][]string
	}{{"shards", s.shards}, {"broker-time", s.times}} {
		if len(setting.of) < 2 {
			continue
		}
		var parts []string
		for _, value := range slices.Sorted(maps.Keys(setting.of)) {
			parts = append(parts, fmt.Sprintf("%s: %s", value, some(setting.of[value])))
		}
		results = append(results, fail("group", "start all aggregators with the same --"+setting.option, "members differ in --%s (%s)", setting.option, strings.Join(parts, "; ")))
	}
	return results
}
