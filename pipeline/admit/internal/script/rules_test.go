package script

import (
	"errors"
	"fmt"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

func TestRulesInRedis(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := &Shards{Client: client, Prefix: "rules", Shards: 3, Partitions: 12}
		if p, err := s.Rules(t.Context()); err != nil || p.Latest != 0 || p.Partitions != 0 {
			t.Fatalf("%+v, %v without any", p, err)
		}
		put := func(version uint64, text string) {
			t.Helper()
			if err := s.PutRules(t.Context(), version, []byte(text)); err != nil {
				t.Fatal(err)
			}
			if has, err := s.HasRules(t.Context(), version); !has || err != nil {
				t.Fatalf("%d is not there: %v", version, err)
			}
		}
		for v := range uint64(10) {
			put(2*v+1, fmt.Sprint("rules ", v))
		}
		put(9, "once more")
		p, err := s.Rules(t.Context())
		want := Published{Latest: 19, Kept: []uint64{5, 7, 11, 13, 15, 17, 19, 9}, Partitions: 12, Shards: 3}
		if diff := gocmp.Diff(want, p); err != nil || diff != "" {
			t.Errorf("%v (- want)\n%s", err, diff)
		}
		for version, want := range map[uint64]string{5: "rules 2", 9: "once more", 19: "rules 9"} {
			if text, err := s.RulesOf(t.Context(), version); err != nil || string(text) != want {
				t.Errorf("version %d is %q, %v; want %q", version, text, err, want)
			}
		}
		if _, err := s.RulesOf(t.Context(), 3); !errors.Is(err, ErrNoRules) {
			t.Errorf("a version that left: %v", err)
		}
		put(20, "")
		if text, err := s.RulesOf(t.Context(), 20); len(text) > 0 || err != nil {
			t.Errorf("rules that ask for nothing: %q, %v", text, err)
		}
		if has, err := (&Shards{Client: client, Prefix: "rules", Shards: 2, Partitions: 12}).HasRules(t.Context(), 20); has || err != nil {
			t.Errorf("another number of shards is not noticed: %v", err)
		}
		if err := s.PutRules(t.Context(), 21, make([]byte, 1<<20+1)); err == nil {
			t.Error("more than 1 MiB was stored")
		}
		if p, err := s.Rules(t.Context()); err != nil || p.Latest != 21 {
			t.Errorf("%+v, %v: nobody hears that there are other rules", p, err)
		}
		if _, err := s.RulesOf(t.Context(), 21); !errors.Is(err, ErrNoRules) {
			t.Errorf("a text that is too long: %v", err)
		}
		for _, field := range []string{fieldShards, fieldLatest, fieldKept} {
			client.HSet(t.Context(), s.rules(), field, "-x")
			if _, err := s.Rules(t.Context()); err == nil {
				t.Errorf("%s of -x was read", field)
			}
			if has, err := s.HasRules(t.Context(), 21); has || err != nil {
				t.Errorf("%s of -x is taken for rules: %v", field, err)
			}
			put(22, "") // by whoever looks
		}
	})
}

// TestATopicOfRulesThatWasCreatedAnew counts from the start, and its versions are the newer ones all the
// same.
func TestATopicOfRulesThatWasCreatedAnew(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		s := &Shards{Client: client, Prefix: "rules", Shards: 1, Partitions: 1}
		before, now := [16]byte{15: 1}, [16]byte{15: 2}
		put := func(topic [16]byte, number int64) {
			t.Helper()
			if err := s.PutRules(t.Context(), protocol.RulesVersion(topic, number), fmt.Append(nil, topic, number)); err != nil {
				t.Fatal(err)
			}
		}
		for number := range int64(12) {
			put(before, number+1)
		}
		for _, number := range []int64{1, 2, 1} { // an instance that is behind is no newer topic
			put(now, number)
			want := protocol.RulesVersion(now, max(number, 1))
			if p, err := s.Rules(t.Context()); err != nil || p.Latest < want || !protocol.SameTopic(p.Latest, want) {
				t.Errorf("%+v, %v; want %d at least", p, err, want)
			}
			if text, err := s.RulesOf(t.Context(), want); err != nil || string(text) != fmt.Sprint(now, number) {
				t.Errorf("version %d is %q, %v", number, text, err)
			}
		}
		if has, err := s.HasRules(t.Context(), protocol.RulesVersion(before, 12)); has || err != nil {
			t.Errorf("the old topic's are still the newest: %v", err)
		}
		if p, err := s.Rules(t.Context()); err != nil || p.Latest != protocol.RulesVersion(now, 2) {
			t.Errorf("%+v, %v", p, err)
		}
	})
}
