package auditlog

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/verdict"
)

func follower(t testing.TB, entries int) *Follower {
	t.Helper()
	f, err := NewFollower(FollowConfig{Topic: "audit", Entries: entries})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func record(n int, at event.Micros) *Record {
	return &Record{Entry: &Entry{Type: Command, ID: fmt.Sprint(n), At: at, Key: []event.Dim{{Name: "uid", Value: fmt.Sprint(n % 1000)}}}, Raw: []byte("{}"), Offset: int64(n)}
}

func ids(f Found) (out []string) {
	for _, r := range f.Entries {
		out = append(out, r.ID)
	}
	return out
}

func find(t testing.TB, f *Follower, want Filter, after string, limit int) Found {
	t.Helper()
	got, err := f.Find(want, after, limit)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

const noon = event.Micros(1_700_000_000_000_000)

// Pages together are all of it, the newest first, also when entries arrive in another order.
func TestPagesOfTheAudit(t *testing.T) {
	f := follower(t, 100)
	for _, n := range []int{3, 1, 7, 5, 6, 2, 4} {
		f.keep(record(n, noon+event.Micros(n/2)))
	}
	var all []string
	for after := ""; ; {
		page := find(t, f, Filter{}, after, 3)
		all = append(all, ids(page)...)
		if after = page.Next; after == "" {
			break
		}
		f.keep(record(100+len(all), noon+100)) // a newer one does not move the pages
	}
	if want := []string{"7", "6", "5", "4", "3", "2", "1"}; !slices.Equal(all, want) {
		t.Errorf("%v, want %v", all, want)
	}
	if got := ids(find(t, f, Filter{Key: []event.Dim{{Name: "uid", Value: "5"}}}, "", 3)); !slices.Equal(got, []string{"5"}) {
		t.Errorf("of a key: %v", got)
	}
	if got := ids(find(t, f, Filter{From: (noon + 2).Time(), To: (noon + 3).Time()}, "", 9)); !slices.Equal(got, []string{"5", "4"}) {
		t.Errorf("of a span: %v", got)
	}
	for _, bad := range []string{"x", "1.2", "1.2.3.4", "1.2.x", " "} {
		if _, err := f.Find(Filter{}, bad, 3); err == nil {
			t.Errorf("%q is taken for a place", bad)
		}
	}
}

// A clear that an instance with a slow clock wrote is shown behind its command.
func TestWhatACommandDidIsNewerThanIt(t *testing.T) {
	f := follower(t, 100)
	command := record(1, noon)
	command.ID = "c1"
	clear := &Record{Entry: &Entry{Type: Verdict, At: noon - 5, ID: "v", Verdict: &verdict.Verdict{Cause: verdict.Cause{ID: "c1"}}}}
	f.keep(clear)
	f.keep(command)
	if got := ids(find(t, f, Filter{}, "", 9)); !slices.Equal(got, []string{"v", "c1"}) {
		t.Errorf("%v", got)
	}
}

// However much there is, memory is bounded, and it says since when it has everything.
func TestTheLatestAreKept(t *testing.T) {
	f := follower(t, 1000)
	for n := range 10_000 {
		f.keep(record(n, noon+event.Micros(n)))
	}
	h := f.Health()
	if h.Entries < 1000 || h.Entries > 1250 {
		t.Errorf("%d entries are kept", h.Entries)
	}
	oldest := find(t, f, Filter{To: h.From}, "", 10)
	all := find(t, f, Filter{From: h.From}, "", 2000)
	if len(oldest.Entries) > 0 || len(all.Entries) != h.Entries || all.Entries[h.Entries-1].At.Time() != h.From {
		t.Errorf("since %v there are %d, before %d", h.From, len(all.Entries), len(oldest.Entries))
	}
	bytes := follower(t, 1000)
	bytes.cfg.Bytes = 100 << 10
	for n := range 200 {
		r := record(n, noon+event.Micros(n))
		r.Raw = make([]byte, 10<<10)
		bytes.keep(r)
	}
	if h := bytes.Health(); h.Bytes > 130<<10 || h.Entries < 4 {
		t.Errorf("%d entries take %d bytes", h.Entries, h.Bytes)
	}
}

func TestAFollowerNeedsATopic(t *testing.T) {
	if _, err := NewFollower(FollowConfig{Kafka: kafkalog.Config{Brokers: []string{"x:1"}}}); err == nil {
		t.Error("it follows no topic")
	}
	if h := follower(t, 1).Health(); !h.From.IsZero() {
		t.Errorf("%+v", h)
	}
}

func BenchmarkFind(b *testing.B) {
	f := follower(b, 50_000)
	for n := range 50_000 {
		f.keep(record(n, noon+event.Micros(n)*event.Second))
	}
	for b.Loop() {
		find(b, f, Filter{Key: []event.Dim{{Name: "uid", Value: "7"}}, KeyOnly: true}, "", 500)
	}
}
