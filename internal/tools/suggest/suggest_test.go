package suggest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
)

// Numbers are rounded up to such as people choose, and a rule file reads what is written.
func TestRounded(t *testing.T) {
	for _, c := range []struct{ n, whole, want string }{
		{"0", "yes", "1"}, {"1", "yes", "1"}, {"7", "yes", "7"}, {"10", "yes", "10"}, {"11", "yes", "12"}, {"33", "yes", "40"}, {"81", "yes", "100"}, {"101", "yes", "120"},
		{"1234", "yes", "1500"}, {"12001", "yes", "15k"}, {"1000001", "yes", "1.2M"}, {"2100000000", "yes", "2.5G"}, {"8999999999999", "yes", "9000G"},
		{"0.031", "no", "0.04"}, {"2.1", "no", "2.5"}, {"7", "no", "8"}, {"1.3", "yes", "2"},
	} {
		d, err := event.ParseDecimal(c.n)
		if err != nil {
			t.Fatal(err)
		}
		got := roundUp(d, c.whole == "yes")
		if written(got) != c.want || got < d {
			t.Errorf("%s (whole: %s): %s, want %s", c.n, c.whole, written(got), c.want)
		}
		count := ""
		if c.whole == "no" {
			count = "count: {sum: cost}, "
		}
		src := "apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: a}\n" +
			"spec: {rules: [{name: a, match: {api: a}, " + count + "limit: " + written(got) + ", per: 1m, then: {block: 1m}}]}\n"
		set, err := rules.Compile("a.yaml", []byte(src))
		if err != nil || set.Limits[0].Limit != got {
			t.Errorf("%s: %v", written(got), err)
		}
	}
}

// Two bursts a little more than a window apart are one to a window by panes. So a number that exact times allow is not
// rounded to one that panes count for.
func TestRoundedWithinExactTimes(t *testing.T) {
	var events []event.Event
	for _, at := range []event.Micros{0, 60_500} {
		for range 61 {
			e := one("u1", 0)
			e.Time = 1000*event.Hour + at*event.Millisecond
			events = append(events, e)
		}
	}
	_, r := studied(t, "    - {name: a, match: {api: a}, limit: suggest, per: 1m, then: {block: 5m}}\n", events, DefaultWish)
	c := r.Limits[0].Choices[0]
	if c.Least != 61*event.One || c.Limit != 64*event.One || c.Keys != 0 || c.Events != 0 {
		t.Errorf("%+v", c)
	}
}

func TestShares(t *testing.T) {
	for text, want := range map[string]event.Decimal{"1%": 10_000, "0.01%": 100, "100%": event.One, "0.0001%": 1} {
		if got, err := ParseShare(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1", "0%", "-1%", "101%", "0.00001%", "x%"} {
		if _, err := ParseShare(text); err == nil {
			t.Errorf("%q is a share", text)
		}
	}
}

// A histogram of many different counts is bounded, and rounds up by less than a thousandth.
func TestManyCounts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	var h histogram
	all := map[event.Decimal]int{}
	for range 3 * maxCounts {
		c := event.Decimal(r.Int64N(1 << 50))
		h.add(c)
		all[c]++
	}
	h.finish()
	if !h.coarse || len(h.n) > maxCounts || h.events() != 3*maxCounts {
		t.Fatalf("%d counts, %d events", len(h.n), h.events())
	}
	least, above := h.least(1000), 0
	for c, n := range all {
		if c > least {
			above += n
		}
		if up := coarsened(c); up < c || up-c > c/1000+1 {
			t.Fatalf("%v becomes %v", c, up)
		}
	}
	if above > 1000 || h.above(least) > 1000 {
		t.Errorf("%d events are above", above)
	}
}

func TestUsersBehind(t *testing.T) {
	for _, users := range []int{1, 10, 64, 65, 500, 20_000} {
		var s userSketch
		for i := range 3 * users {
			s.add(hashUID(fmt.Sprint("user", i%users)))
		}
		s.add(0)
		got := s.count()
		if users <= exactUsers && got != users || got < users*2/3 || got > users*3/2 || s.absent != 1 || len(s.hashes) > exactUsers {
			t.Errorf("%d users count as %d", users, got)
		}
	}
}

const perAddress = `
    - name: logins
      key: ip/24
      match: {api: a}
      limit: suggest   # of an office
      per: 1m
      then: {block: 5m}
`

func TestPeopleBehindOneAddress(t *testing.T) {
	var events []event.Event
	for i := range 40 {
		e := one(fmt.Sprint("u", i%20), i*30)
		e.IP, _ = event.ParseAddress("192.0.2.7")
		events = append(events, e)
	}
	_, r := studied(t, perAddress, events, DefaultWish)
	l := &r.Limits[0]
	if l.Behind == nil || l.Behind.Many != 1 || l.Top[0].Users != 20 {
		t.Fatalf("%+v", l)
	}
	has(t, l.Behind.Says, "people share these keys", "Count by uid as well")
	for i := range events {
		events[i].UID = "u1"
	}
	_, r = studied(t, perAddress, events, DefaultWish)
	has(t, r.Limits[0].Behind.Says, "most are one user each")
	for i := range events {
		events[i].UID = ""
	}
	_, r = studied(t, perAddress, events, DefaultWish)
	has(t, r.Limits[0].Behind.Says, "the events do not tell")
	if got := r.Limits[0].Top[0].Without; got != 40 {
		t.Errorf("%d events without a uid", got)
	}
}

// The rules come back as they are written, with numbers in the place of the words; other rules do not.
func TestFilled(t *testing.T) {
	const draft = `
    - name: other
      match: {api: b}
      limit: 5
      per: 1s
      then: {block: 1m}

    - name: two
      match: {api: a}   # ünï
      limits: [{name: "a", limit: &x suggest, per: 1m}, {name: b, limit: "suggest", per: 1s, window: tumbling}, {name: c, limit: 1, per: 1s, burst: suggest, window: bucket}]

      then:
        block: 5m
    # of the next one
    - {name: last, match: {api: c}, limit: suggest, per: 1m, then: {block: 1m}}
`
	var events []event.Event
	for i := range 30 {
		events = append(events, one("u1", i/2))
	}
	_, r := studied(t, draft, events, DefaultWish)
	const want = `    - name: two
      match: {api: a}   # ünï
      limits: [{name: "a", limit: &x 30, per: 1m}, {name: b, limit: 2, per: 1s, window: tumbling}, {name: c, limit: 1, per: 1s, burst: 20, window: bucket}]

      then:
        block: 5m
    - {name: last, match: {api: c}, limit: suggest, per: 1m, then: {block: 1m}}
`
	if r.Rules != want {
		t.Errorf("got:\n%s\nwant:\n%s", r.Rules, want)
	}
	var out bytes.Buffer
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	has(t, out.String(), "nothing can be suggested", "less than one", "less than 5 windows", "0.01% of keys", "all 30")
	if strings.Contains(out.String(), "other") {
		t.Error("a rule that has its number is shown")
	}
}

// Who has a limit of another tier, or is exempt, says nothing about this one.
func TestOthersAreLeftOut(t *testing.T) {
	const draft = `
    - name: calls
      match: {api: a}
      limit: suggest
      per: 1m
      tiers: [{when: 'uid == "vip"', limit: 64}, {when: 'uid == "own"', unlimited: true}]
      exempt: [{uid: test, reason: our own}]
      then: {block: 5m}
`
	var events []event.Event
	for i, uid := range []string{"u1", "vip", "own", "test", "test", "u2", "u2"} {
		events = append(events, one(uid, i))
	}
	s, r := studied(t, draft, events, DefaultWish)
	if l := r.Limits[0]; l.Keys != 2 || l.Events != 3 || l.Suggest != 2*event.One {
		t.Errorf("%+v", l)
	}
	if s.Bytes() < 2*keyBytes {
		t.Errorf("%d bytes", s.Bytes())
	}
}
