package index

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

// inForce is a verdict on a key, in short: a rule, since when and until when.
type inForce struct {
	rule         string
	since, until event.Micros
}

// byPieces is a check of one user, written out as in the package's doc. ok is false when only User can tell.
func byPieces(x *Index, uid string) (found []inForce, ok bool) {
	user, n := UserOf(uid), len(uid)
	if !user.Plain(uid) {
		return nil, false
	}
	v := x.View()
	for p := v.Start(user); ; p = v.Next(p) {
		for s := p.Slots(user); s != 0; s = s.Rest() {
			rec, ok := x.At(v, p, s)
			if !ok {
				return nil, false
			}
			if !rec.Fits(n) {
				if rec.Wide() {
					return nil, false
				}
				continue
			}
			if n >= 8 && n <= 16 {
				if !rec.Is(n, user) {
					continue
				}
			} else if rec.UID(n) != uid {
				continue
			}
			c, until, differs, ok := v.Only(rec)
			if !ok {
				return nil, false
			}
			duration := c.Duration
			if differs {
				duration = rec.Duration(n)
			}
			return []inForce{{c.Verdict.Rule, until - duration, until}}, true
		}
		if p.Last() {
			return nil, true
		}
	}
}

func byUser(x *Index, uid string) (found []inForce) {
	if r, ok := x.User(uid); ok {
		r.Each(func(c *Class, since, until event.Micros) {
			found = append(found, inForce{c.Verdict.Rule, since, until})
		})
	}
	return found
}

// The pieces find what User finds, and leave to it only what is rare.
func TestPiecesFindWhatUserFinds(t *testing.T) {
	r := rand.New(rand.NewPCG(testrun.Seed(t), 2))
	x := newIndex(false)
	text := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = 'a' + byte(r.IntN(3))
		}
		return string(b)
	}
	uids := []string{"é", "用户", text(255) + "é"}
	for range 3000 {
		uids = append(uids, text(1+r.IntN(20)))
	}
	for n := range 300 {
		uids = append(uids, text(n+1))
	}
	several := map[string]bool{}
	for _, uid := range uids {
		for _, rule := range []string{"a", "b"}[:1+r.IntN(5)/4] {
			x.Apply(0, []verdict.Verdict{{Rule: rule, Key: []event.Dim{{Name: dimUID, Value: uid}}, APIs: []string{"*"}, Until: t0, Seq: 1,
				Since: t0 - event.Micros(r.Int64N(1<<r.IntN(62))) + event.Micros(r.IntN(3))}})
			several[uid] = several[uid] || rule == "b"
		}
	}
	rare := 0
	for _, uid := range append(slices.Clone(uids), "nobody", strings.Repeat("x", 30)) {
		found, ok := byPieces(x, uid)
		if !ok {
			rare++
			if !several[uid] && len(uid) <= 255 && uid[0] < 0x80 {
				t.Errorf("%q has one verdict, and the pieces do not find it", uid)
			}
			continue
		}
		if want := byUser(x, uid); !slices.Equal(found, want) {
			t.Errorf("%q: %v, want %v", uid, found, want)
		}
	}
	if rare == 0 || rare > len(uids)/2 {
		t.Errorf("%d of %d are rare", rare, len(uids))
	}
}

// A view that is not the index's any more may refer to other memory: the pieces say so.
func TestPiecesNoticeAnotherView(t *testing.T) {
	x := newIndex(false)
	x.Apply(0, []verdict.Verdict{block("r", "uid=42", nil)})
	user, v := UserOf("42"), x.View()
	p := v.Start(user)
	if _, ok := x.At(v, p, p.Slots(user)); !ok {
		t.Fatal("the record is not found in the index's differs view")
	}
	x.Apply(0, []verdict.Verdict{block("another", "uid=42", nil)})
	if _, ok := x.At(v, p, p.Slots(user)); ok {
		t.Error("a record is read by way of a view that is gone")
	}
}
