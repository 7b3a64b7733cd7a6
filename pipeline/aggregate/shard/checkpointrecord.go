package shard

import (
	"encoding/json"
	"fmt"

	"github.com/tallygate/tallygate/event"
)

// CheckpointKey is the key of checkpoint records in the changelog.
const CheckpointKey = "\x00checkpoint"

const checkpointVersion = 1

// checkpoint is the content of a checkpoint record: all of a partition's state beside its keys. Everything below Next
// is in the keys' states that stand before the record in the changelog.
type checkpoint struct {
	Version   int                    `json:"version"`
	Topics    map[string]string      `json:"topics"`              // the topics' ids, by name
	Next      [Sources]int64         `json:"next"`                // the first offset not covered
	Origins   map[int32][3]int64     `json:"origins,omitempty"`   // offset + 1, index, generation
	Producers map[string]producerRow `json:"producers,omitempty"` // when they are few
	Broker    event.Micros           `json:"broker_time_us"`
	Rules     string                 `json:"rules"` // the rule set's hash
	RulesAt   int64                  `json:"rules_version,omitempty"`
	Blown     []string               `json:"blown,omitempty"` // rules whose fuses have blown

	// The versions of the parts that hold the producers when they are many.
	ProducerParts []uint64 `json:"producer_parts,omitempty"`

	Generation uint32 `json:"generation,omitempty"`      // as intake has it
	Start      int64  `json:"changelog_start,omitempty"` // what is gone below was accepted

	// Strict names the rules that enforcers were told to ask for permits by: see Rules.name.
	Strict       string   `json:"strict,omitempty"`
	StrictNumber uint64   `json:"strict_version,omitempty"`
	StrictLimits []string `json:"strict_limits,omitempty"` // its limits, by their names in levels

	Epochs *Epochs `json:"epochs,omitempty"` // nil in records of older programs

	// Judged is of the record's place in the changelog, not of the cut. It is nil in records of
	// older programs.
	Judged *judgedRecord `json:"judged,omitempty"`
}

func (c *checkpoint) encode() ([]byte, error) { return json.Marshal(c) }

func decodeCheckpoint(value []byte) (*checkpoint, error) {
	var c checkpoint
	if err := json.Unmarshal(value, &c); err != nil {
		return nil, fmt.Errorf("checkpoint record: %w", err)
	}
	if c.Version != checkpointVersion {
		return nil, fmt.Errorf("%w: checkpoint version %d, this program reads %d", ErrNewerFormat, c.Version, checkpointVersion)
	}
	return &c, nil
}
