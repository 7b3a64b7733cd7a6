package script

import (
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

// The rules that enforcers ask by lie in one hash, {PREFIX:rules}:strict, in which each version is a
// field. It is there as soon as an aggregator has been: one that is missing says nothing about the rules.
// A text that is empty says that no rule of the version asks for anything before an action.
const (
	fieldPartitions = "partitions"
	fieldShards     = "shards"
	fieldLatest     = "latest"
	fieldKept       = "kept"

	maxRules = 1 << 20 // bytes of a text
)

//go:embed rules.lua
var rulesSource string

// putRules needs no rights beyond those of the blocklist's publisher: it also runs where no rule is strict.
var putRules = redis.NewScript(rulesSource)

// ErrNoRules says that Redis does not have a version of the rules.
var ErrNoRules = errors.New("script: Redis does not have this version of the rules")

var errMalformed = errors.New("these are no numbers; an aggregator writes them again")

// Published is the version of the rules in Redis. Without any the zero value is.
type Published struct {
	Latest     uint64
	Kept       []uint64 // the versions that are there, in the order in which they were stored
	Partitions int32    // of the event topic, and so of the verdict topic
	Shards     int      // partition p is on shard p % Shards
}

func (s *Shards) rules() string { return "{" + s.Prefix + ":rules}:strict" }

// PutRules stores the text of a version of the rules: its record in the rules topic. The eight versions
// that were stored last stay. A text that is too long is an error, and enforcers are in doubt.
func (s *Shards) PutRules(ctx context.Context, version uint64, text []byte) error {
	args := []any{version, s.Partitions, s.Shards, text}
	if len(text) > maxRules {
		args = args[:3]
	}
	if err := putRules.Run(ctx, s.Client, []string{s.rules()}, args...).Err(); err != nil {
		return fmt.Errorf("store the rules in Redis: %w", err)
	}
	if len(text) > maxRules {
		return fmt.Errorf("store the rules in Redis: version %d has %d bytes, at most %d are allowed: strict limits are in doubt until the rules are shorter",
			protocol.RulesNumber(version), len(text), maxRules)
	}
	return nil
}

// HasRules tells whether enforcers find a version of the rules, and no older one in its place. What they
// cannot read is none.
func (s *Shards) HasRules(ctx context.Context, version uint64) (bool, error) {
	p, err := s.Rules(ctx)
	if errors.Is(err, errMalformed) {
		return false, nil
	}
	return err == nil && slices.Contains(p.Kept, version) && protocol.SameTopic(p.Latest, version) && p.Latest >= version &&
		p.Partitions == s.Partitions && p.Shards == s.Shards, err
}

// Rules returns what Redis has of the rules.
func (s *Shards) Rules(ctx context.Context) (p Published, err error) {
	values, err := s.Client.HMGet(ctx, s.rules(), fieldLatest, fieldKept, fieldPartitions, fieldShards).Result()
	if err != nil {
		return p, fmt.Errorf("read the rules in Redis: %w", err)
	}
	var texts [4]string
	for i := range values {
		texts[i], _ = values[i].(string)
	}
	if texts[0] == "" {
		return p, nil
	}
	numbers := make([]uint64, 0, 16)
	for _, text := range append(texts[:1:1], append(texts[2:], strings.Fields(texts[1])...)...) {
		n, err := strconv.ParseUint(text, 10, 53)
		if err != nil {
			return p, s.malformed(texts)
		}
		numbers = append(numbers, n)
	}
	p = Published{Latest: numbers[0], Partitions: int32(numbers[1]), Shards: int(numbers[2]), Kept: numbers[3:]}
	if p.Partitions < 1 || p.Shards < 1 {
		return Published{}, s.malformed(texts)
	}
	return p, nil
}

func (s *Shards) malformed(texts [4]string) error {
	return fmt.Errorf("read the rules in Redis: %s has %q for the latest version, those kept, and how many partitions and shards there are: %w",
		s.rules(), texts, errMalformed)
}

// RulesOf returns the text of a version; ErrNoRules when there is none.
func (s *Shards) RulesOf(ctx context.Context, version uint64) ([]byte, error) {
	text, err := s.field(ctx, s.rules(), strconv.FormatUint(version, 10))
	switch {
	case errors.Is(err, redis.Nil):
		return nil, fmt.Errorf("%w: %d", ErrNoRules, protocol.RulesNumber(version))
	case err != nil:
		return nil, fmt.Errorf("read version %d of the rules in Redis: %w", protocol.RulesNumber(version), err)
	}
	return []byte(text), nil
}

// field reads a field of a hash, by the command that followers of the blocklist may use anyway.
func (s *Shards) field(ctx context.Context, key, name string) (string, error) {
	values, err := s.Client.HMGet(ctx, key, name).Result()
	if err != nil {
		return "", err
	}
	if text, ok := values[0].(string); ok {
		return text, nil
	}
	return "", redis.Nil
}

// Beat reads the time of the latest heartbeat of the blocklist's first shard, by its clock in milliseconds; 0: none
// is there. It tells that aggregators live.
func (s *Shards) Beat(ctx context.Context) (int64, error) {
	text, err := s.field(ctx, "{"+s.Prefix+":0}:verdicts", "\x00beat")
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	var beat int64
	if err == nil {
		beat, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil {
		return 0, fmt.Errorf("read the blocklist's heartbeat in Redis: %w", err)
	}
	return beat, nil
}
