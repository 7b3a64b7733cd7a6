package group

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
)

// Place is the offset at which a partition of the audit is to be read on, with the journal of what lies behind it.
// Kafka keeps both with the group's offsets.
type Place struct {
	Offset   int64
	Metadata string
}

// journal is a Place's metadata, as JSON.
type journal struct {
	Sending *sending         `json:"sending,omitempty"`
	Told    map[string]int64 `json:"told,omitempty"` // see part.told
}

// sending is a Message that was on its way.
type sending struct {
	ID    string  `json:"id"`
	Hash  string  `json:"hash"`
	First int64   `json:"first"` // of its entries in this partition
	Last  int64   `json:"last"`
	Parts []int32 `json:"parts"` // all partitions that it has entries of
}

// maxMetadata bounds a journal: brokers refuse more than 4 KiB (offset.metadata.max.bytes). What does not fit may be
// told again, with another id.
const maxMetadata = 3 << 10

// Begin starts at these Places, with the partitions that this Book has now. What it had of entries is
// forgotten: they are read again where they are nobody else's.
func (b *Book) Begin(places map[int32]Place) {
	b.End()
	b.restored = map[string]*batch{}
	for partition, at := range places {
		p := &part{next: at.Offset, told: map[string]int64{}}
		b.parts[partition] = p
		var j journal
		if json.Unmarshal([]byte(at.Metadata), &j) != nil {
			continue // another program's, or none
		}
		maps.Copy(p.told, j.Told)
		if s := j.Sending; s != nil && !slices.ContainsFunc(s.Parts, func(of int32) bool { _, have := places[of]; return !have }) {
			g := b.restored[s.Hash]
			if g == nil || g.id != s.ID {
				g = &batch{id: s.ID, hash: s.Hash, spans: map[int32]*span{}, whole: true, parts: s.Parts}
				b.restored[s.Hash] = g
			}
			g.spans[partition] = &span{s.First, s.Last}
		}
	}
	for hash, g := range b.restored {
		if len(g.spans) < len(g.parts) { // the journals are of different moments
			delete(b.restored, hash)
			continue
		}
		b.order = append(b.order, g)
	}
}

// End gives all partitions back.
func (b *Book) End() {
	own := func(g *batch) bool { return len(g.spans) > 0 }
	b.order = slices.DeleteFunc(b.order, own)
	maps.DeleteFunc(b.groups, func(_ string, g *batch) bool { return own(g) })
	if b.sent != nil && own(b.sent) {
		b.sent = nil
	}
	b.parts, b.restored = map[int32]*part{}, nil
}

// Progress returns each partition's place after a crash.
func (b *Book) Progress() map[int32]Place {
	out := map[int32]Place{}
	for partition, p := range b.parts {
		from := p.next
		for _, g := range b.order {
			if s := g.spans[partition]; s != nil {
				from = min(from, s.First)
			}
		}
		var j journal
		for _, g := range append(slices.Clone(b.order), b.sent) {
			if g != nil && (g == b.sent || g.whole) && g.spans[partition] != nil {
				s := g.spans[partition]
				from = min(from, s.First)
				j.Sending = &sending{g.id, g.hash, s.First, s.Last, g.partitions()}
			}
		}
		maps.DeleteFunc(p.told, func(_ string, last int64) bool { return last < from })
		j.Told = p.told
		out[partition] = Place{from, j.text()}
	}
	return out
}

// text is the journal, without what does not fit: the oldest marks first.
func (j *journal) text() string {
	if j.Sending == nil && len(j.Told) == 0 {
		return ""
	}
	marks := slices.SortedFunc(maps.Keys(j.Told), func(a, b string) int { return cmp.Compare(j.Told[b], j.Told[a]) })
	for fit := len(marks); ; fit /= 2 {
		some := journal{Sending: j.Sending, Told: map[string]int64{}}
		for _, hash := range marks[:fit] {
			some.Told[hash] = j.Told[hash]
		}
		if text, err := json.Marshal(some); err == nil && len(text) <= maxMetadata {
			return string(text)
		}
		if fit == 0 {
			if j.Sending == nil {
				return ""
			}
			j.Sending = nil
			fit = len(marks)
		}
	}
}
