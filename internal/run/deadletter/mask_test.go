package deadletter

import (
	"strings"
	"testing"
)

// What everybody may see has nothing of what an event says about its user.
func TestShape(t *testing.T) {
	for value, want := range map[string]string{
		`{"uid":"alice","api":"login","outcome":"success","cost":12.5,"x":true,"y":null}`: `{"uid":"•••","api":"login","outcome":"success","cost":•••,"x":true,"y":null}`,
		`{"api": "user/alice@example.org"}`:                                               `{"api": "•••"}`,
		`{"uid": {"api": "alice"}}`:                                                       `{"uid": {"api": "alice"}}`, // an API's name is nobody's
		`[{"uid":"a"},{"uid":"b"}]`:                                                       `[{"uid":"•••"},{"uid":"•••"}]`,
		`{"attrs":{"alice@example.org":1}}`:                                               `{"attrs":{"•••":•••}}`,
		`{"uid":"al\"ice","api":"a"}`:                                                     `{"uid":"•••","api":"a"}`,
		`{"uid":"alice`:                                                                   `{"uid":"•••"`,
		`uid=alice&api=login`:                                                             `•••=•••&•••=•••`,
		`{uid: alice}`:                                                                    `{•••: •••}`,
		"192.0.2.1 - alice [10/Oct/2026] \"GET /u/alice\"":                                `••• - ••• [•••/•••/•••] "•••"`,
		"":                    "",
		"{\"uid\"\x00:\"ü\"}": `{"•••" :"•••"}`,
	} {
		l := Letter{Value: &value}
		if got := l.Shape(); got != want {
			t.Errorf("%s\n got %s\nwant %s", value, got, want)
		}
	}
	long := `{"uid":"` + strings.Repeat("a", 1000) + `","b":[` + strings.Repeat("1,", 1000) + `]}`
	if got := (&Letter{Value: &long}).Shape(); len(got) > maxShape+20 || !strings.HasSuffix(got, "…") || strings.Contains(got, "aa") {
		t.Errorf("%s", got)
	}
	if got := (&Letter{Value64: []byte("\xff\xfealice")}).Shape(); strings.Contains(got, "alice") {
		t.Errorf("%s", got)
	}
}

func TestAbout(t *testing.T) {
	l := Letter{Detail: `uid: "alice" is no text: 1700000000, 'bob' at line 3; write "uid": "x"`}
	if got := l.About(); strings.Contains(got, "alice") || strings.Contains(got, "bob") || strings.Contains(got, "170") || !strings.Contains(got, "line 3") {
		t.Errorf("%s", got)
	}
}

func TestProducer(t *testing.T) {
	name, source := "shop-php", "https://shop"
	l := Letter{Headers: []Header{{Key: "ce_source", Value: &source}, {Key: "TG-C", Value: &name}}}
	if got := l.Producer(); got != name {
		t.Errorf("%q", got)
	}
	if got := (&Letter{Headers: []Header{{Key: "tg-c", Value64: []byte{0xff}}}}).Producer(); got != "" {
		t.Errorf("%q", got)
	}
}
