package testrun

import (
	"fmt"
	"os"
	"strconv"
)

// whole is the depth at which a model or a simulation does all that it was made for.
const whole = 10

// Depth returns how many of n steps, seeds or cases a test takes: a tenth, at least one. `make nightly` takes all,
// with TALLYGATE_TEST_DEPTH=10; a greater depth takes more than all.
func Depth(n int) int { return max(1, n*depth()/whole) }

// Deep reports whether tests take all of their steps, so that what is rare has to have come up.
func Deep() bool { return depth() >= whole }

func depth() int {
	text := os.Getenv("TALLYGATE_TEST_DEPTH")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		panic(fmt.Sprintf("TALLYGATE_TEST_DEPTH=%s: want a number from 1 on", text))
	}
	return n
}
