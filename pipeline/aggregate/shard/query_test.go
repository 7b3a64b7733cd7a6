package shard

import "testing"

func TestKeysThatHaveDimensions(t *testing.T) {
	for _, tt := range []struct {
		key  string
		dims []string
		want bool
	}{
		{"uid=42", []string{"uid=42"}, true},
		{"attrs.campaign=x&uid=42", []string{"uid=42"}, true},
		{"attrs.a=1&attrs.b=2&uid=42", []string{"attrs.b=2", "uid=42"}, true},
		{"attrs.a=1&attrs.b=2&uid=42", []string{"attrs.b=3", "uid=42"}, false},
		{"uid=142", []string{"uid=42"}, false},
		{"attrs.uid=42", []string{"uid=42"}, false},
		{"attrs.uid=42&uid=7", []string{"uid=42"}, false},
		{"uid=42", []string{"attrs.a=1", "uid=42"}, false},
		{"", []string{"uid=42"}, false},
		{"attrs.a=1&uid=42", []string{"attrs.a=1"}, true}, // it was not found: the uid is behind it
		{"api=x&attrs.a=1&uid=42", []string{"api=x"}, true},
		{"attrs.a=1", []string{"attrs.a=1"}, true},
		{"attrs.a=11&uid=42", []string{"attrs.a=1"}, false},
	} {
		var dims [][]byte
		for _, d := range tt.dims {
			dims = append(dims, []byte(d))
		}
		if got := hasAll([]byte(tt.key), dims); got != tt.want {
			t.Errorf("has %q all of %q: %v", tt.key, tt.dims, got)
		}
	}
}
