package verdict

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/event"
)

// KeyText returns the key's record-key text: uid=42, attrs.campaign=c1&uid=42.
func (v *Verdict) KeyText() string { return string(v.appendKeyText(nil)) }

func (v *Verdict) appendKeyText(dst []byte) []byte {
	return event.AppendKey(dst, v.Key)
}

// AppendRecordKey appends the key of the verdict's record: the key's text, '|', the rule's
// name, and "|warn" for a notice or "|left" for what is left, so that neither replaces a block.
func AppendRecordKey(dst []byte, v *Verdict) []byte {
	dst = v.appendKeyText(dst)
	dst = append(dst, '|')
	dst = append(dst, v.Rule...)
	switch v.State {
	case Warn:
		dst = append(dst, "|warn"...)
	case Left:
		dst = append(dst, "|left"...)
	case Block, Clear:
	}
	return dst
}

// RecordKey is the parsed key of a verdict's record.
type RecordKey struct {
	Text string // the key's text, as KeyText returns it
	Key  []event.Dim
	Rule string
	Warn bool
	Left bool
}

// OwnRecord reports whether a record of the verdict topic is one of the owners' own: its key begins
// with NUL. Readers skip those.
func OwnRecord(key []byte) bool { return len(key) > 0 && key[0] == 0 }

// ParseRecordKey is the inverse of AppendRecordKey. What it returns shares no memory with key.
func ParseRecordKey(key []byte) (RecordKey, error) {
	if OwnRecord(key) {
		return RecordKey{}, errors.New("verdict: parse record key: it begins with NUL, so it is an owner's own record")
	}
	text, rule, ok := bytes.Cut(key, []byte{'|'})
	rule, warn := bytes.CutSuffix(rule, []byte("|warn"))
	left := false
	if !warn {
		rule, left = bytes.CutSuffix(rule, []byte("|left"))
	}
	if !ok || len(rule) == 0 || bytes.IndexByte(rule, '|') >= 0 {
		return RecordKey{}, fmt.Errorf("verdict: parse record key %.80q: want dimension=value|rule, and |warn or |left behind it", key)
	}
	dims, err := event.ParseKey(text)
	if err != nil {
		return RecordKey{}, fmt.Errorf("verdict: parse record key: %w", err)
	}
	return RecordKey{Text: string(text), Key: dims, Rule: string(rule), Warn: warn, Left: left}, nil
}
