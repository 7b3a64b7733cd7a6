package event

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// A header carries every permit unchanged, in bytes that HTTP allows.
func TestPermitsTravelInAHeader(t *testing.T) {
	at := MinTime + 5
	for _, p := range []Permit{
		{},
		{ID: "a-1", At: at},
		{ID: "a-1", At: NoTime},
		{ID: `"é\` + "\x7f😀", At: NoTime, Keys: []PermitKey{{"uid=größe", at}, {"uid=\x01", 7}}},
	} {
		text := p.Header()
		if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 {
			t.Errorf("%q has a byte at %d that headers do not take", text, i)
		}
		back, err := ParsePermit(text)
		if err != nil || !reflect.DeepEqual(back, p) && p.ID != "" {
			t.Errorf("%+v came back as %+v: %v", p, back, err)
		}
	}
	p := Permit{ID: "a-1", At: 0}
	if want := `{"permit":"a-1","permit_at":"1970-01-01T00:00:00Z"}`; p.Header() != want {
		t.Errorf("the header is %s, want %s", p.Header(), want)
	}
	if PermitHeader != http.CanonicalHeaderKey(PermitHeader) {
		t.Error("the header's name is not canonical")
	}
}

func TestAPermitHeaderThatIsNone(t *testing.T) {
	for _, text := range []string{
		"a-1", "{", "{}", `{"permit":""}`, `{"permit":7}`, `{"permit":"a","permit_at":[]}`, `{"permit":"a"} {}`, `["permit"]`, "null",
		`{"permit_at":"2026-01-01T00:00:00Z"}`,
	} {
		if p, err := ParsePermit(text); err == nil || p.ID != "" || !strings.Contains(err.Error(), PermitHeader) {
			t.Errorf("%s is %+v: %v", text, p, err)
		}
	}
}

func FuzzParsePermit(f *testing.F) {
	f.Add(`{"permit":"a-1","permit_at":{"uid=1":"1970-01-01T00:00:00Z"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePermit(text)
		if err != nil || p.ID == "" {
			return
		}
		if back, err := ParsePermit(p.Header()); err != nil || !reflect.DeepEqual(back, p) {
			t.Fatalf("%+v came back as %+v: %v", p, back, err)
		}
	})
}
