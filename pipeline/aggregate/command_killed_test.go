package aggregate

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// An owner that ends in the middle of a command of many keys leaves it half done. It reports of how
// many keys, and that it must be repeated; the repetition does the rest.
func TestACommandThatIsInterruptedIsGivenAgain(t *testing.T) {
	everyKafka(t, func(t *testing.T, r *rig) {
		m := r.begin(compile(t, byCampaign), func(c *Config) { c.CheckpointEvery = time.Hour })
		const campaigns = 3000
		var list []string
		for i := range campaigns {
			list = append(list, fmt.Sprintf("c%d", i))
		}
		p := m.partition(m.Partition(uidKey("u1")))
		told := regexp.MustCompile(`is durable on (\d+) of 3001 keys, and may be on more: repeat it`)
		r.emit(shown("u1", list...)...)
		eventually(t, "all are counted", func() bool { return r.count("u1", "per-year", m) >= campaigns*1_000_000 })
		failed := make(chan error, 1)
		go func() {
			_, err := m.Command(t.Context(), Command{Name: "forget", Key: uidKey("u1"), Reason: "a test", By: "tester"})
			failed <- err
		}()
		for halfDone := false; !halfDone; {
			left, ok := p.InFlight()
			halfDone = ok && left < campaigns
			select {
			case err := <-failed:
				t.Fatalf("the command is done before it could be interrupted: %v", err)
			default:
			}
		}
		p.Fail(errors.New("killed by the test"))
		err := <-failed
		if err == nil || told.FindStringSubmatch(err.Error()) == nil {
			t.Fatalf("an interrupted command: %v", err)
		}
		n, _ := strconv.Atoi(told.FindStringSubmatch(err.Error())[1])
		if n < 1 || n > campaigns {
			t.Errorf("it is done on %d of %d keys", n, campaigns+1)
		}
		t.Log(err)
		eventually(t, "it is taken over", func() bool { q := m.partition(p.ID()); return q != nil && q != p && q.Opened() })
		// Events that no checkpoint covers are counted again, and then a command that came before
		// them
		// would not apply to them.
		r.quiet(m)
		eventually(t, "it is given again", func() bool {
			_, err := m.Command(t.Context(), Command{Name: "forget", Key: uidKey("u1"), Reason: "a test", By: "tester"})
			return err == nil
		})
		if got := r.namedIn("uid=u1"); len(got) > 0 {
			t.Errorf("the verdict topic names u1 in %q", got)
		}
		for _, campaign := range list {
			if e := r.standing(m, campaignKey("u1", campaign), "per-campaign"); e.Count != 0 {
				t.Fatalf("%s has counted %v", campaign, e.Count)
			}
		}
	})
}
