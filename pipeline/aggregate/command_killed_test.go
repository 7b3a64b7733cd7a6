package aggregate

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// An owner that ends in the middle of a command of many keys leaves it half done. It reports of how
// many keys, and that it must be repeated; the repetition does the rest.
func TestACommandThatIsInterruptedIsGivenAgain(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		m := r.begin(compile(t, byCampaign), func(c *Config) { c.CheckpointEvery = time.Hour })
		const campaigns = 3000
		var list []string // which no single batch has room for
		for i := range campaigns {
			list = append(list, fmt.Sprintf("c%d-%s", i, strings.Repeat("x", 150)))
		}
		p := m.partition(homeOf(uidKey("u1")))
		eventually(t, "all keys are judged", func() (all bool) {
			p.View(func(s *shard.Shard, _ *owner.Rules) { all = s.Judge().AllJudged() })
			return all
		})
		told := regexp.MustCompile(`is durable on (\d+) of 3001 keys, and may be on more: repeat it`)
		r.emit(shown("u1", list...)...)
		eventually(t, "all are counted, and the changelog is quiet", func() bool {
			return r.count("u1", "per-year", m) >= campaigns*event.One && len(r.inForceOn("uid=u1")) > 0
		})
		r.memory.Room(r.names.Table, p.ID(), 5)
		failed := make(chan error, 1)
		go func() {
			_, err := m.Command(t.Context(), ask.Command{Name: "forget", Key: uidKey("u1"), Reason: "a test", By: "tester"})
			failed <- err
		}()
		eventually(t, "it is done on some of the keys", func() bool {
			left, ok := p.InFlight()
			return ok && left <= campaigns
		})
		p.Fail(errors.New("killed by the test"))
		err := <-failed
		r.memory.Room(r.names.Table, p.ID(), -1)
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
		// them would not apply to them.
		synctest.Wait()
		eventually(t, "it is given again", func() bool {
			_, err := m.Command(t.Context(), ask.Command{Name: "forget", Key: uidKey("u1"), Reason: "a test", By: "tester"})
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
