package doctor

import (
	"strconv"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

// shared are the settings that must be the same for all members, as these tell them. Older members tell nothing.
var shared = []struct {
	what string
	of   func(*topics.Member) string
}{
	{api.DiffersRedis, func(m *topics.Member) string {
		return map[string]string{topics.WithRedis: api.RedisThis, topics.WithoutRedis: api.RedisNone}[m.Redis]
	}},
	{api.DiffersShards, func(m *topics.Member) string {
		if m.Shards == 0 {
			return ""
		}
		return strconv.Itoa(m.Shards)
	}},
	{api.DiffersBrokerTime, func(m *topics.Member) string { return m.BrokerTime }},
}

// differences enters what differs between the members, as they would tell it themselves: the first member that has a
// setting tells of those that have another one.
func differences(members []api.Status, told []topics.Member) {
	for _, setting := range shared {
		first := -1
		for i := range told {
			value := setting.of(&told[i])
			switch {
			case value == "":
			case first < 0:
				first = i
			case value != setting.of(&told[first]):
				to := members[first].Aggregator
				to.Differs = append(to.Differs, api.Difference{Instance: members[i].Instance, What: setting.what, Here: setting.of(&told[first]), There: value})
			}
		}
	}
}
