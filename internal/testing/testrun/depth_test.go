package testrun

import "testing"

func TestDepth(t *testing.T) {
	for _, c := range []struct {
		depth    string
		n, steps int
		deep     bool
	}{
		{"", 100, 10, false},
		{"", 5, 1, false},
		{"1", 1_000_000, 100_000, false},
		{"10", 60, 60, true},
		{"30", 60, 180, true},
	} {
		t.Setenv("TALLYGATE_TEST_DEPTH", c.depth)
		if got := Depth(c.n); got != c.steps || Deep() != c.deep {
			t.Errorf("TALLYGATE_TEST_DEPTH=%s: %d of %d, all: %v; want %d, %v", c.depth, got, c.n, Deep(), c.steps, c.deep)
		}
	}
	t.Setenv("TALLYGATE_TEST_DEPTH", "all")
	defer func() {
		if recover() == nil {
			t.Error("a depth that is no number was taken")
		}
	}()
	Depth(1)
}
