package httplimit

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/rig"
	"github.com/tallygate/tallygate/verdict"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func now() event.Micros { return event.FromTime(time.Now()) }

func newTable(t testing.TB) *enforce.Table {
	t.Helper()
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// running makes a table and runs it until the test ends.
func running(t *testing.T) *enforce.Table {
	t.Helper()
	table := newTable(t)
	testrun.Start(t, table.Run)
	return table
}

// block is a verdict on a key such as "uid=42", for an hour from now.
func block(rule, key string, change func(*verdict.Verdict)) verdict.Verdict {
	return rig.Block(rule, key, now(), now()+event.Hour, change)
}
