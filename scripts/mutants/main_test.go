package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const program = `package p

func (c *counter) add(n int) bool {
	switch {
	case n < 1:
		return false
	}
	if c.full() {
		c.sum += n
	}
	return c.sum == 0
}
`

func TestMutants(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.go")
	if err := os.WriteFile(path, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := mutantsOf(path, "p/p.go")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range found {
		got = append(got, m.key())
	}
	want := []string{
		"p/p.go: counter.add: `n < 1` → `n <= 1`",
		"p/p.go: counter.add: `n < 1` → `n >= 1`",
		"p/p.go: counter.add: `n < 1` → `n < 0`",
		"p/p.go: counter.add: `return false` → `return true`",
		"p/p.go: counter.add: `c.full()` → `!(c.full())`",
		"p/p.go: counter.add: `c.sum += n` → ``",
		"p/p.go: counter.add: `c.sum == 0` → `c.sum != 0`",
		"p/p.go: counter.add: `c.sum == 0` → `c.sum == 1`",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// go test does not count the line of a case: what reaches the switch reaches it.
func TestWhatReachesASwitchReachesItsCases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.go")
	if err := os.WriteFile(path, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := mutantsOf(path, "p/p.go")
	if err != nil {
		t.Fatal(err)
	}
	if block := (cover{3, 36, 4, 9}); !found[0].in(block) || found[3].in(block) {
		t.Errorf("%v is in the block of the switch: %t; %v: %t", found[0].key(), found[0].in(block), found[3].key(), found[3].in(block))
	}
}
