package aggregate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

const (
	ruleRecordKey    = "rules"
	ruleRecordFormat = 1

	// rulesWithin bounds reading the records that the topic should hold.
	rulesWithin = 20 * time.Second
)

// ruleRecord is a record of the rules topic.
type ruleRecord struct{ api.RuleRecord }

// ruleRecordAt is a ruleRecord as the topic holds it.
type ruleRecordAt struct {
	offset int64
	value  []byte
}

func (a *ruleRecordAt) parse() (r ruleRecord, err error) {
	err = json.Unmarshal(a.value, &r)
	if err == nil && r.Format != ruleRecordFormat {
		err = fmt.Errorf("%w: rules record of format %d, this program reads %d", shard.ErrNewerFormat, r.Format, ruleRecordFormat)
	}
	return r, err
}

// refused says that a published version does not compile here, and what to do. No older version
// replaces it: what was counted since belongs to this one, and would be lost.
func (r *ruleRecord) refused(version int64, err error) error {
	of := fmt.Sprintf("version %d of the group's rules, which %s published from %s of %s,", version, r.By, r.File, r.Modified.UTC().Format(time.RFC3339))
	if r.Source == "" {
		of = fmt.Sprintf("version %d of the group's rules", version)
	}
	return fmt.Errorf("%s does not compile here: %w\n"+
		"if this program is older than the one that published it, start that version or a newer one; otherwise fix the rule file, touch it so that it is newer, and start this program again, or let a running instance publish it",
		of, err)
}

// ruleFile returns the file as it was published. The files that it names come with it, and are not
// read from this machine's disk.
func (r *ruleRecord) ruleFile() RuleFile {
	f := RuleFile{Name: r.File, Source: []byte(r.Source), Modified: r.Modified, Files: r.Files, Published: true}
	if f.Files == nil {
		f.Files = map[string][]byte{}
	}
	return f
}

// textOf identifies the text of a version: what somebody wrote, whatever program reads it.
func textOf(source []byte, files map[string][]byte) string {
	h := sha256.New()
	part := func(b []byte) { fmt.Fprintf(h, "%d:%s", len(b), b) }
	part(source)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		part([]byte(name))
		part(files[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// withdraws reports whether a file has the text of a version that this roll back replaced. Such a file may get a
// newer time at any moment, when a container starts or a slow copy arrives: that must not undo the roll back.
func (r *ruleRecord) withdraws(source []byte, files map[string][]byte) bool {
	return len(r.Withdrawn) > 0 && slices.Contains(r.Withdrawn, textOf(source, files))
}

// ErrWithdrawnRules says that a rule file has the text of a version that was rolled back. It wraps ErrOlderRules.
var ErrWithdrawnRules = fmt.Errorf("%w, and was rolled back", ErrOlderRules)

func (r *ruleRecord) withdrawn(version int64, file string) error {
	return fmt.Errorf("%w: %s is what version %d replaced when %s rolled the rules back to version %d (%s); change the file, or roll back to the version with its text",
		ErrWithdrawnRules, file, version, r.By, r.From, r.Reason)
}

// rulesStep is the number of records that are looked at first, and rulesMost at most at once, when the last one is
// looked for from the topic's end.
const (
	rulesStep = 1
	rulesMost = 512
)

// scanRules calls each with the records of the rules topic at offsets [from, to), in order.
type scanRules func(ctx context.Context, from, to int64, each func(*kafkalog.Record) error) error

// lastRules returns a copy of the last record that holds rules at offsets [from, end), or nil if
// there is none. The topic keeps all versions, so it looks from the end backwards, in growing steps.
func lastRules(ctx context.Context, scan scanRules, from, end int64) (last *ruleRecordAt, err error) {
	ctx, cancel := context.WithTimeout(ctx, rulesWithin)
	defer cancel()
	for step, to := int64(rulesStep), end; last == nil && to > from && err == nil; step = min(8*step, rulesMost) {
		at := max(from, to-step)
		err = scan(ctx, at, to, func(rec *kafkalog.Record) error {
			if string(rec.Key) == ruleRecordKey {
				last = &ruleRecordAt{rec.Offset, bytes.Clone(rec.Value)}
			}
			return nil
		})
		to = at
	}
	return last, err
}

// rulesAt returns the record of a version; nil if there is none.
func rulesAt(ctx context.Context, scan scanRules, oldest, end, version int64) (*ruleRecordAt, error) {
	if version <= oldest || version > end {
		return nil, nil //nolint:nilnil // no record and no error
	}
	m, err := lastRules(ctx, scan, version-1, version)
	if errors.Is(err, kafkalog.ErrOutOfRange) { // deleted meanwhile
		return nil, nil //nolint:nilnil // the same
	}
	return m, err
}
