package shard

import (
	"encoding/hex"
	"fmt"
	"maps"

	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/rules"
)

// judged says by what a partition's keys were judged last. It is durable with the states: from the
// moment at which other rules come into force until a pass has judged all keys by them, it is
// unknown by what the changed limits are judged.
type judged struct {
	pass    [32]byte // the hash of the set that the last pass, or the present one, judges by
	done    int      // how many parts of the table it has been through; judgedAll: all
	limits  rules.Judged
	doubted bool // limits are what may have changed: see rules.Stepper.AfterJudged
}

const judgedAll = state.Parts

// judgedBy is what it says when all is judged by a set.
func judgedBy(set *rules.Set) judged {
	return judged{pass: set.Hash, done: judgedAll, limits: set.Judged()}
}

// change notes that another set is in force from here on. What was judged otherwise is
// not known any more; limits that are gone stay until the pass is through, since they may come back
// before it has been everywhere.
func (j *judged) change(set *rules.Set) {
	if j.pass == set.Hash {
		return
	}
	limits, since := maps.Clone(j.limits), set.Since(j.limits)
	for hash, by := range set.Judged() {
		switch was, known := since[hash]; {
		case !known || was == rules.JudgedByNone:
			limits[hash] = rules.JudgedByNone // it is new, or comes back
		case was != by:
			limits[hash] = rules.JudgedBy{}
		default:
			limits[hash] = by
		}
	}
	*j = judged{pass: set.Hash, limits: limits}
}

// judgedRecord is judged as checkpoints have it, with hashes in hexadecimal.
type judgedRecord struct {
	Pass    string            `json:"pass"`
	Done    int               `json:"done"`
	Limits  map[string]string `json:"limits,omitempty"`
	Doubted bool              `json:"doubted,omitempty"`
}

func (j *judged) record() *judgedRecord {
	r := &judgedRecord{Pass: hex.EncodeToString(j.pass[:]), Done: j.done, Limits: make(map[string]string, len(j.limits)), Doubted: j.doubted}
	for hash, by := range j.limits {
		r.Limits[hex.EncodeToString(hash[:])] = hex.EncodeToString(by[:])
	}
	return r
}

func (r *judgedRecord) judged() (j judged, err error) {
	j = judged{done: min(max(r.Done, 0), judgedAll), limits: rules.Judged{}, doubted: r.Doubted}
	if err := unhex(j.pass[:], r.Pass); err != nil {
		return j, err
	}
	for text, value := range r.Limits {
		var hash rules.SectionHash
		var by rules.JudgedBy
		if err := unhex(hash[:], text); err != nil {
			return j, err
		}
		if err := unhex(by[:], value); err != nil {
			return j, err
		}
		j.limits[hash] = by
	}
	return j, nil
}

func unhex(dst []byte, text string) error {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(dst) {
		return fmt.Errorf("checkpoint record: what was judged: %q is no hash of %d bytes", text, len(dst))
	}
	copy(dst, b)
	return nil
}
