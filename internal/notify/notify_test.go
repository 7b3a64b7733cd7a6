package notify

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/notify/note"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// one is a file with one webhook, and a route of these fields.
func one(url, route string) string {
	return fmt.Sprintf("receivers: [{name: hook, webhook: {url: %q}}]\nroutes: [{name: oncall, to: hook, %s}]\n", url, route)
}

// What happens in all partitions is told, the same together; what the program has told before it was stopped is not
// told again.
func TestWhatHappensIsTold(t *testing.T) {
	t.Parallel()
	s, b := newStage(t), newInbox(t)
	s.configure(one(b.URL, "on: [command, fuse], wait: 300ms, every: 1s"))
	s.write(0, commandOf("before")) // nobody is told what happened before the first start
	s.start()
	s.write(0, commandOf("1"), `{"type":"read"}`, fuseOf("search"))
	s.write(1, commandOf("2"), "nonsense")
	s.write(2, commandOf("3"))
	testrun.Eventually(t, "all is told", func() bool { return b.notes() == 4 })
	if is := b.titles(); !strings.Contains(is, "3 commands: block (3)") || !strings.Contains(is, "a fuse has blown: rule search (1)") {
		t.Error(is)
	}
	for _, m := range b.messages() {
		if text := m.Text; strings.Contains(text, "uid=1") || m.Kind == note.Command && !strings.Contains(text, "uid=•••  block until 2026-11-21 13:00:00Z, by support: stolen") {
			t.Error(text)
		}
	}
	testrun.Eventually(t, "nothing waits", func() bool { return s.metric("backlog", "hook") == 0 && s.metric("lag", "hook") == 0 })
	if s.metric("sent", "hook", "command") != 1 || s.metric("dropped", "hook", dropUnreadable) != 1 {
		t.Errorf("%v are sent", s.metric("sent", "hook", "command"))
	}
	s.stop()
	s.write(1, commandOf("4")) // while nobody is there
	s.start()
	testrun.Eventually(t, "the fourth is told", func() bool { return b.notes() >= 5 })
	if last := b.messages()[len(b.messages())-1]; last.Count != 1 || b.notes() != 5 {
		t.Errorf("%s", b.titles())
	}
}

// A receiver that is down is told everything when it is up again, and holds no other one up.
func TestAReceiverThatIsDown(t *testing.T) {
	t.Parallel()
	s, up, down := newStage(t), newInbox(t), newInbox(t)
	down.set(answers(http.StatusServiceUnavailable, ""))
	s.configure(fmt.Sprintf(`
receivers: [{name: up, webhook: {url: %q}}, {name: down, webhook: {url: %q}}]
routes: [{name: oncall, on: command, to: [up, down], wait: 0s, every: 0s}]
`, up.URL, down.URL))
	s.start()
	for i := range 10 {
		s.write(i%partitions, commandOf(fmt.Sprint(i)))
	}
	testrun.Eventually(t, "the one that is up is told", func() bool { return up.notes() == 10 })
	testrun.Eventually(t, "the other one was asked twice, and all waits", func() bool {
		return s.metric("failed", "down", "broken") >= 2 && s.metric("backlog", "down") == 10 && s.metric("lag", "down") > 0
	})
	if down.notes() != 0 {
		t.Errorf("it has %s", down.titles())
	}
	if !s.log.Has("a message is not accepted") || strings.Contains(s.log.String(), "uid") {
		t.Error(s.log.String())
	}
	s.stop() // nothing of it is in memory only
	s.start()
	down.set(nil)
	testrun.Eventually(t, "it is told all", func() bool { return down.notes() == 10 })
	if up.notes() != 10 {
		t.Errorf("the one that was up has %d", up.notes())
	}
}

// A receiver that wants fewer messages is not asked sooner than it says; then it gets what came meanwhile.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	s, b := newStage(t), newInbox(t)
	b.set(answers(http.StatusTooManyRequests, "3"))
	s.configure(one(b.URL, "on: command, wait: 100ms, every: 0s"))
	s.start()
	s.write(0, commandOf("1"))
	testrun.Eventually(t, "it was asked", func() bool { return b.attempts() == 1 })
	began := time.Now()
	s.write(1, commandOf("2"), commandOf("3"))
	b.set(nil)
	testrun.Eventually(t, "all is told", func() bool { return b.notes() == 3 })
	if took := time.Since(began); took < 2*time.Second || len(b.messages()) != 2 || s.metric("failed", "hook", "limited") != 1 {
		t.Errorf("after %v: %s", took, b.titles())
	}
}

// A message that a receiver refuses for good is dropped and counted: it would hold up all that is behind it.
func TestARefusedMessage(t *testing.T) {
	s, b := newStage(t), newInbox(t)
	b.set(answers(http.StatusBadRequest, ""))
	s.configure(one(b.URL, "on: command, wait: 0s, every: 0s"))
	s.start()
	s.write(0, commandOf("1"))
	testrun.Eventually(t, "it is dropped", func() bool { return s.metric("dropped", "hook", dropRefused) == 1 })
	b.set(nil)
	s.write(0, commandOf("2"))
	testrun.Eventually(t, "the next one is told", func() bool { return b.notes() == 1 })
	if !s.log.Has("refuses a message") {
		t.Error(s.log.String())
	}
}

// While a file is broken the old one stays in effect, and the log says why. A changed one is in effect without a
// restart; what waits for a receiver whose routes have changed is told.
func TestTheFileChanges(t *testing.T) {
	t.Parallel()
	s, b, other := newStage(t), newInbox(t), newInbox(t)
	s.configure(one(b.URL, "on: command, wait: 0s, every: 0s"))
	s.start()
	s.configure("receivers: [{name: hook, slack: {url: 'https://hush'}}]")
	testrun.Eventually(t, "the log tells of the mistake", func() bool { return s.log.Has("keeping the old one") })
	if s.program.wrong() == nil || strings.Contains(s.log.String(), "hush") || s.metric("reloads", "error") != 1 {
		t.Error(s.log.String())
	}
	s.write(0, commandOf("1"))
	testrun.Eventually(t, "the old file is in effect", func() bool { return b.notes() == 1 })
	b.set(answers(http.StatusServiceUnavailable, ""))
	s.write(1, commandOf("2"))
	testrun.Eventually(t, "it is asked", func() bool { return b.attempts() >= 2 })
	s.configure(one(other.URL, "on: [command, fuse], wait: 0s, every: 0s"))
	testrun.Eventually(t, "it is reloaded", func() bool { return s.log.Has("the file was reloaded") && s.program.wrong() == nil })
	s.joined()
	s.write(2, fuseOf("a"))
	testrun.Eventually(t, "the other address is told what waits, and what is new", func() bool { return other.notes() == 2 })
	b.set(nil)
	if b.notes() != 1 {
		t.Errorf("the old address has %s", b.titles())
	}
}

// States are told when they begin and when they end, once, also to a receiver that was down meanwhile.
func TestStatesAreTold(t *testing.T) {
	t.Parallel()
	s, b := newStage(t), newInbox(t)
	s.configure(one(b.URL, "on: [rules-rejected, lag, aggregators-gone], wait: 0s, every: 0s") + "watch: {poll: 1s, lag: {above: 10s, for: 0s}, aggregators: {for: 1s}}\n")
	set := func(change func(*api.AggregatorStatus)) {
		a := &api.AggregatorStatus{Rules: api.RulesStatus{FileOK: true}, Partitions: []api.PartitionStatus{{Partition: 0, Keys: 10}}}
		change(a)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cluster = api.Cluster{Members: []api.Status{{Instance: "agg-1", Aggregator: a}}}
	}
	set(func(a *api.AggregatorStatus) { a.Rules.FileOK, a.Rules.FileError = false, "rules.yaml:3:1: no\n hint" })
	s.start()
	testrun.Eventually(t, "the rejected file is told", func() bool { return b.titles() == "a rule file is rejected: agg-1 (1)" })
	first := b.messages()[0]
	if first.State != note.Firing || !strings.HasSuffix(first.Text, "agg-1  keeps the rules that it has: rules.yaml:3:1: no") {
		t.Errorf("%+v", first)
	}
	b.set(answers(http.StatusServiceUnavailable, ""))
	set(func(a *api.AggregatorStatus) { a.Partitions[0].LagSeconds = 60 })
	testrun.Eventually(t, "it is asked", func() bool { return b.attempts() >= 2 })
	b.set(nil)
	testrun.Eventually(t, "the end of one and the beginning of the other are told", func() bool {
		is := b.titles()
		return strings.Contains(is, "the rule file is taken again: agg-1 (1)") && strings.Contains(is, "counting is behind: partition 0 (1)")
	})
	s.api.CloseClientConnections()
	s.api.Config.Handler = http.NotFoundHandler() // it answers, so somebody is there
	set(func(*api.AggregatorStatus) {})
	if n := len(b.messages()); n != 3 {
		t.Errorf("%d messages: %s", n, b.titles())
	}
	s.api.Close()
	testrun.Eventually(t, "nobody counts", func() bool { return strings.Contains(b.titles(), "nobody counts: aggregators (1)") })
	ids := map[string]bool{}
	for i, m := range b.messages() {
		if ids[m.ID] || b.ids[i] != m.ID {
			t.Errorf("%s twice, or not in the header", m.ID)
		}
		ids[m.ID] = true
	}
}

// What --dry-run prints is what would be sent, and nothing is remembered of it.
func TestDryRun(t *testing.T) {
	t.Parallel()
	s, b := newStage(t), newInbox(t)
	s.configure(one(b.URL, "on: command, wait: 0s, every: 0s"))
	var out testrun.Output
	s.dry = &out
	s.start()
	s.write(0, commandOf("1"))
	testrun.Eventually(t, "it is printed", func() bool { return out.Has(`hook {"version":1,"id":"`) })
	if s.stop(); b.attempts() != 0 {
		t.Error("it was sent")
	}
	s.dry = nil
	s.start()
	s.write(0, commandOf("2"))
	testrun.Eventually(t, "it is sent", func() bool { return b.notes() == 1 })
}

// Two programs share the partitions, and one of them tells of states.
func TestTwoPrograms(t *testing.T) {
	t.Parallel()
	s, b := newStage(t), newInbox(t)
	s.configure(one(b.URL, "on: [command, rules-rejected], wait: 0s, every: 0s") + "watch: {poll: 1s}\n")
	s.start()
	first := s.program
	s.start()
	owned := func(p *Program) (n int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return int(p.running["hook"].worker.owns.Load())
	}
	testrun.Eventually(t, "both have partitions", func() bool {
		return owned(first) > 0 && owned(s.program) > 0 && owned(first)+owned(s.program) == partitions
	})
	for i := range 9 {
		s.write(i%partitions, commandOf(fmt.Sprint(i)))
	}
	s.mu.Lock()
	s.cluster = api.Cluster{Members: []api.Status{{Instance: "agg-1", Aggregator: &api.AggregatorStatus{Rules: api.RulesStatus{FileError: "no"}}}}}
	s.mu.Unlock()
	testrun.Eventually(t, "all is told", func() bool { return b.notes() >= 10 })
	states := slices.DeleteFunc(b.messages(), func(m note.Message) bool { return m.Kind != note.RulesRejected })
	if len(states) != 1 || b.notes() != 10 {
		t.Errorf("%s", b.titles())
	}
}
