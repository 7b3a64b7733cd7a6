package keyref

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
)

func refs(t testing.TB, secret string, plain ...string) *Refs {
	t.Helper()
	r, err := New(Config{Secret: []byte(secret), Plain: plain})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const secret = "0123456789abcdef"

func uid(value string) []event.Dim { return []event.Dim{{Name: "uid", Value: value}} }

func TestReferences(t *testing.T) {
	r := refs(t, secret)
	for _, key := range [][]event.Dim{uid("42"), uid("ann@example.com/…?&="), {{Name: "api", Value: "login"}, {Name: "ip/64", Value: "2001:db8::/64"}}, uid(strings.Repeat("x", 256))} {
		ref := r.Ref(key)
		if !regexp.MustCompile(`^[A-Za-z0-9_-]+$`).MatchString(ref) || strings.Contains(ref, key[0].Value) {
			t.Errorf("%v has the reference %s", key, ref)
		}
		if got, err := r.Key(ref); err != nil || !slices.Equal(got, key) {
			t.Errorf("%v comes back as %v, %v", key, got, err)
		}
		if refs(t, secret).Ref(key) != ref {
			t.Error("another console with the same secret makes another reference")
		}
		if _, err := refs(t, secret+"!").Key(ref); !errors.Is(err, ErrRef) {
			t.Errorf("a console with another secret: %v", err)
		}
	}
	if len(r.Ref(uid("1"))) != len(r.Ref(uid("1234567"))) {
		t.Error("a reference tells exactly how long a uid is")
	}
	if _, err := r.Key(r.Seal("cursor", []byte("uid=42"))); !errors.Is(err, ErrRef) {
		t.Errorf("a cursor is taken for a reference: %v", err)
	}
	if _, err := New(Config{Secret: []byte("short")}); err == nil {
		t.Error("a short secret is accepted")
	}
}

// A new secret makes other references, and those that were sent around still work.
func TestOlderSecrets(t *testing.T) {
	before := refs(t, secret)
	after, err := New(Config{Secret: []byte(secret + "2"), Older: [][]byte{[]byte("another one, of no use"), []byte(secret)}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := after.Key(before.Ref(uid("42"))); err != nil || !slices.Equal(got, uid("42")) || after.Ref(uid("42")) == before.Ref(uid("42")) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := before.Key(after.Ref(uid("42"))); !errors.Is(err, ErrRef) {
		t.Errorf("a reference of tomorrow: %v", err)
	}
	if got := after.Mask([]event.Dim{{Name: "ip", Value: "192.0.2.7"}, {Name: "uid", Value: "42"}}, uid("42")...); !strings.HasSuffix(got, " uid=42") || strings.Contains(got, "192") {
		t.Errorf("with what is known: %s", got)
	}
	if _, err := New(Config{Secret: []byte(secret), Older: [][]byte{[]byte("short")}}); err == nil {
		t.Error("a short older secret is accepted")
	}
}

// Whatever is changed in a reference, it is refused.
func TestTamperedReferencesAreRefused(t *testing.T) {
	r := refs(t, secret)
	ref := r.Ref(uid("42"))
	for i := range ref {
		for _, c := range "AQ_z" {
			changed := ref[:i] + string(c) + ref[i+1:]
			if _, err := r.Key(changed); changed != ref && !errors.Is(err, ErrRef) {
				t.Errorf("%s, once %s, is accepted", changed, ref)
			}
		}
		if _, err := r.Key(ref[:i]); !errors.Is(err, ErrRef) {
			t.Errorf("the first %d characters are accepted", i)
		}
	}
}

func TestMasks(t *testing.T) {
	r := refs(t, secret, "attrs.campaign")
	key := []event.Dim{{Name: "uid", Value: "42"}, {Name: "api", Value: "login"}, {Name: "attrs.campaign", Value: "summer"}, {Name: "attrs.shop", Value: "7"}, {Name: "ip/24", Value: "192.0.2.0/24"}}
	got := r.Mask(key)
	if !regexp.MustCompile(`^api=login attrs\.campaign=summer attrs\.shop=•••[a-z2-7]{4} ip/24=•••[a-z2-7]{4} uid=•••[a-z2-7]{4}$`).MatchString(got) {
		t.Errorf("masked: %s", got)
	}
	if r.Mask(key) != got || r.Mask(uid("42")) != "uid="+r.MaskValue("uid", "42") || r.Mask(uid("42")) == r.Mask(uid("43")) {
		t.Error("equal values need equal masks")
	}
	if r.MaskValue("uid", "7") == r.MaskValue("attrs.shop", "7") {
		t.Error("the masks of two dimensions tell that their values are the same")
	}
	if refs(t, secret+"!").Mask(uid("42")) == r.Mask(uid("42")) {
		t.Error("the mask does not depend on the secret")
	}
	if !r.HasPersonal(key) || r.HasPersonal([]event.Dim{{Name: "all", Value: "true"}, {Name: "api", Value: "login"}}) {
		t.Error("which keys have personal data?")
	}
}

func TestWhoSearchedSeesIt(t *testing.T) {
	r := refs(t, secret)
	now := time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)
	cookie := r.Show("", "ann", uid("42"), now)
	cookie = r.Show(cookie, "ann", uid("43"), now.Add(time.Minute))
	for _, c := range []struct {
		who  string
		key  string
		at   time.Time
		want bool
	}{
		{"ann", "42", now, true}, {"ann", "43", now, true}, {"ann", "44", now, false}, {"bob", "42", now, false},
		{"ann", "42", now.Add(ShownFor), false}, {"ann", "43", now.Add(ShownFor), true},
	} {
		if got := r.Shown(cookie, c.who, uid(c.key), c.at); got != c.want {
			t.Errorf("%s sees %s at %v: %v", c.who, c.key, c.at, got)
		}
	}
	for i := range 3 * maxPasses {
		cookie = r.Show(cookie, "ann", uid(fmt.Sprint(i)), now)
	}
	if len(cookie) > 1000 || !r.Shown(cookie, "ann", uid(fmt.Sprint(3*maxPasses-1)), now) || r.Shown(cookie, "ann", uid("1"), now) {
		t.Errorf("the cookie has %d bytes", len(cookie))
	}
	again := r.Show(r.Show("", "ann", uid("1"), now), "ann", uid("1"), now.Add(time.Second))
	if len(again) != len(r.Show("", "ann", uid("1"), now)) {
		t.Error("a key that was searched for twice is there twice")
	}
}

// No input makes it panic, and only what it made itself is accepted.
func FuzzReferences(f *testing.F) {
	r := refs(f, secret)
	f.Add(r.Ref(uid("42")), "uid=42")
	f.Add("", "")
	f.Add("AAAA", "api=x&uid=1")
	f.Fuzz(func(t *testing.T, ref, text string) {
		if key, err := r.Key(ref); err == nil && r.Ref(key) != ref {
			t.Errorf("%q is accepted for %v", ref, key)
		}
		got, err := r.Unseal("x", r.Seal("x", []byte(text)))
		if err != nil || string(got) != text {
			t.Errorf("%q comes back as %q, %v", text, got, err)
		}
		r.Shown(ref, text, uid("42"), time.Unix(0, 0))
		r.Shown(r.Show(ref, text, uid("42"), time.Unix(0, 0)), text, uid("42"), time.Unix(0, 0))
		if key, err := event.ParseKey([]byte(text)); err == nil {
			for _, d := range key {
				if masked := r.Mask(key); len(d.Value) > 8 && r.Personal(d.Name) && !strings.Contains(d.Name, d.Value) && len(key) == 1 && strings.Contains(masked, d.Value) {
					t.Errorf("%q is masked as %q", text, masked)
				}
			}
		}
	})
}
