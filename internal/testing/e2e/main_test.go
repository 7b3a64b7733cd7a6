package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// binDir is where the programs are built, once, by the first test that needs one.
var binDir string

func TestMain(m *testing.M) {
	if os.Getenv(aRaceIsWanted) != "" {
		race()
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tallygate-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binDir = dir
	if raceEnabled() {
		within *= 3
	}
	return m.Run()
}

// build builds the programs, with the race detector if the tests have it.
var build = sync.OnceValue(func() error {
	args := []string{"build", "-o", binDir + string(filepath.Separator)}
	if raceEnabled() {
		args = append(args, "-race")
	}
	args = append(args, "../../../cmd/aggregator", "../../../cmd/enforcer", "../../../cmd/enforcer-kafka", "../../../cmd/tallygate")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w\n%s", args, err, out)
	}
	return nil
})

func raceEnabled() bool {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return false
	}
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}

// scaled is n events, or a fifth of them where the race detector makes everything slow.
func scaled(n int) int {
	if raceEnabled() {
		return n / 5
	}
	return n
}

// program returns the path of a built program.
func program(t *testing.T, name string) string {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(binDir, name)
}

// newRand returns the test's source of chance. TALLYGATE_TEST_SEED runs it again.
func newRand(t *testing.T) *rand.Rand { return rand.New(rand.NewPCG(testrun.Seed(t), 1)) }
