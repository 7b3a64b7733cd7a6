package publish

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

// TestBatches: how records become batches; each is its offset and what it says.
func TestBatches(t *testing.T) {
	for _, c := range []struct {
		what, records, want string
		most                int
	}{
		{"nothing", "", "[0,9)", 10},
		{"one of each key", "a1 b1", "[0,9) a1:0 b1:1", 10},
		{"a later level takes the first one's place, and settles both", "a1 b1 a2", "[0,9) a2:0,2 b1:1", 10},
		{"an older level that comes later", "a5 a2", "[0,9) a5:1,0", 10},
		{"no level is behind a version that it precedes", "a1 v2 a2 b1", "[0,9) a2:0,2 v2 b1:3", 10},
		{"a tombstone ends what was before it", "a1 !a a1 b1 a2", "[0,9) a1:0 !a a2:2,4 b1:3", 10},
		{"of a tombstone alone", "!a a1", "[0,9) !a a1:1", 10},
		{"of another key", "a1 !b a2", "[0,9) a2:0,2 !b", 10},
		{"grants stay where they are", "g a1 g", "[0,9) g a1:1 g", 10},
		{"so many fit", "a1 b1 a2 c1 d1", "[0,3) a2:0,2 b1:1", 2},
		{"exactly", "a1 b1", "[0,9) a1:0 b1:1", 2},
		{"no more permits than one call settles", "a1 S S a2 a3", "[0,2) a1:0 s1:1,...", 10},
		{"one record may settle more", "S S a1", "[0,1) s1:0,...", 10},
	} {
		var records []Record
		for i, text := range strings.Fields(c.records) {
			records = append(records, Record{int64(i), recordOf(text, i)})
		}
		if got := textOf(batch(records, 0, 9, c.most)); got != c.want {
			t.Errorf("%s: %s becomes %s, want %s", c.what, c.records, got, c.want)
		}
	}
}

func recordOf(text string, i int) protocol.Record {
	switch text[0] {
	case 'v':
		return *version(2)
	case 'g':
		return protocol.Record{Grants: &protocol.Grants{}}
	case '!':
		return protocol.Record{Gone: text[1:]}
	case 'S':
		n := maxSettles
		if i > 0 {
			n = maxSettles/2 + 1
		}
		r := level("s", 1, 0, 0, make([]string, n)...)
		r.Level.Settles[0] = fmt.Sprint(i)
		return *r
	}
	return *level(text[:1], int64(text[1]-'0'), 0, 0, fmt.Sprint(i))
}

func textOf(b *protocol.Batch) string {
	out := fmt.Sprintf("[%d,%d)", b.Start, b.Next)
	for _, r := range b.Records {
		switch {
		case r.Grants != nil:
			out += " g"
		case r.Gone != "":
			out += " !" + r.Gone
		case r.Level != nil:
			out += fmt.Sprintf(" %s%d:", r.Level.Key, r.Level.Seq)
			var ids []string
			for i, id := range r.Level.Settles {
				if id != "" {
					ids = append(ids, id)
				} else if i > 0 && r.Level.Settles[i-1] != "" {
					ids = append(ids, "...")
				}
			}
			out += strings.Join(ids, ",")
		default:
			out += fmt.Sprint(" v", r.Version)
		}
	}
	return out
}
