package keytext

import (
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
)

// A key that was printed was refused when it was pasted back, and one of two dimensions began a second
// command in the shell.
func TestWhatIsPrintedCanBePasted(t *testing.T) {
	for text, key := range map[string][]event.Dim{
		"uid=42":                              {{Name: "uid", Value: "42"}},
		"ip/64=2001:db8::/64":                 {{Name: "ip/64", Value: "2001:db8::/64"}},
		"attrs.campaign=summer%20sale uid=42": {{Name: "attrs.campaign", Value: "summer sale"}, {Name: "uid", Value: "42"}},
		"uid=ann@example.com":                 {{Name: "uid", Value: "ann@example.com"}},
		"uid=Jürgen":                          {{Name: "uid", Value: "Jürgen"}},
		"uid=50%25":                           {{Name: "uid", Value: "50%"}},
		"uid=a%2541":                          {{Name: "uid", Value: "a%41"}},
		"attrs.q=a%26uid=7 uid=42":            {{Name: "attrs.q", Value: "a&uid=7"}, {Name: "uid", Value: "42"}},
		"attrs.q=%24(rm)%3B":                  nil,
	} {
		if key != nil && Format(key) != text {
			t.Errorf("%v is written %q, want %q", key, Format(key), text)
		}
		for _, typed := range [][]string{{text}, strings.Fields(text), {event.FormatKey(key)}} {
			if got, err := Parse(typed...); key != nil && (err != nil || !slices.Equal(got, key)) {
				t.Errorf("%q is read as %v, %v; want %v", typed, got, err, key)
			}
		}
	}
	if got := FormatMap(map[string]string{"uid": "4 2", "api": "a.b"}); got != "api=a.b uid=4%202" {
		t.Errorf("a key of JSON is written %q", got)
	}
}

// What people type without thinking of any encoding means what it says.
func TestPlainText(t *testing.T) {
	for typed, want := range map[string]string{
		"uid=50%":                   "uid=50%25",
		"uid=5%zz":                  "uid=5%25zz",
		"attrs.campaign=a=b":        "attrs.campaign=a=b",
		"attrs.shop=books & more":   "attrs.shop=books%20%26%20more",
		"uid=42 & api=login":        "api=login uid=42",
		" uid=42":                   "uid=42",
		"ip=::FFFF:203.0.113.9":     "ip=203.0.113.9",
		"ip/24=192.0.2.77":          "ip/24=192.0.2.0/24",
		"ip/64=2001%3Adb8%3A%3A%2F": "",
	} {
		key, err := Parse(typed)
		if got := Format(key); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v; want %q", typed, got, err, want)
		}
	}
	for typed, want := range map[string]string{
		"":             `"" is not a key: write dimension=value, such as uid=42`,
		"42":           `"42" is not a key: write dimension=value`,
		"uid=":         "is not a key",
		"user=42":      `"user" is not a dimension`,
		"uid=1 uid=2":  "uid is given twice",
		"ip/24/64=::1": "write ip/24",
	} {
		if _, err := Parse(typed); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", typed, err, want)
		}
	}
	if _, err := Parse(); err == nil {
		t.Error("nothing is a key")
	}
}

// Whatever a key is, what is printed of it is one word a dimension, is accepted, and means the same; so
// does the text of its record key.
func FuzzKeyText(f *testing.F) {
	f.Add("42", "campaign", "summer sale & more", "2001:db8::1")
	f.Add("50%41%", "a=b c&uid=1", "uid=3 uid=4&api=x", "")
	f.Add("\xff\x00", "%", "~!*'\"$`\\|<>;\u202e", "::ffff:192.0.2.1")
	f.Fuzz(func(t *testing.T, uid, name, value, ip string) {
		var key []event.Dim
		for name, value := range map[string]string{"uid": uid, "attrs." + name: value, "ip/64": ip} {
			if d, err := event.NewDim(name, value); err == nil {
				key = append(key, d)
			}
		}
		if len(key) == 0 {
			return
		}
		slices.SortFunc(key, byName)
		text := Format(key)
		if words := strings.Fields(text); len(words) != len(key) || strings.ContainsAny(text, "\"'`$&|;<>()*?[]{}!\\#\n\x00") {
			t.Errorf("%q is not %d words for a shell", text, len(key))
		}
		for _, text := range []string{text, event.FormatKey(key)} {
			if got, err := Parse(text); err != nil || !slices.Equal(got, key) {
				t.Errorf("%q is read as %q, %v; want %q", text, got, err, key)
			}
		}
	})
}
