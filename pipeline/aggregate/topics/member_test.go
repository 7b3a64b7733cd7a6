package topics_test

import (
	"testing"

	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

// What a member says is read as it was said, also what a version before or after this one says.
func TestMember(t *testing.T) {
	for _, m := range []topics.Member{
		{}, {Advertise: "a:1"}, {Advertise: "a:1", Rules: "ff"}, {Advertise: "a:1", TLS: true}, {Advertise: "a:1", Rules: "ff", TLS: true, Key: "k"}, {Key: "k"},
		{Advertise: "a:1", Packs: true}, {TLS: true, Key: "k", Packs: true},
		{Redis: topics.WithoutRedis}, {Advertise: "a:1", Key: "k", Packs: true, Redis: topics.WithRedis, Shards: 12, BrokerTime: "append"}, {BrokerTime: "create"},
	} {
		if got := topics.ParseMember(m.UserData()); got != m {
			t.Errorf("%+v is read as %+v", m, got)
		}
	}
	for text, want := range map[string]topics.Member{
		"a:1\x00ff":                  {Advertise: "a:1", Rules: "ff"},
		"a:1":                        {Advertise: "a:1"},
		"":                           {},
		"a:1\x00ff\x00tls\x00k\x00x": {Advertise: "a:1", Rules: "ff", TLS: true, Key: "k"},
		"a:1\x00\x00\x00\x00\x00redis=meets shards=x new=1 time=append\x00x": {Advertise: "a:1", Redis: topics.WithRedis, BrokerTime: "append"},
		"a:1\x00\x00\x00\x00packs\x00x":                                      {Advertise: "a:1", Packs: true},
	} {
		if got := topics.ParseMember([]byte(text)); got != want {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
