package aggregate

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

const byCampaign = yearly + `
    - name: per-campaign
      key: [uid, attrs.campaign]
      match: {api: "*"}
      limits: [{name: all, limit: 3, per: year, window: calendar, candidate: {limit: 2}}]
      warn: [50%]
      then: {block: until-reset}
    - name: by-shop
      key: [attrs.campaign]
      match: {api: "*"}
      limit: 1M
      per: year
      window: calendar
      then: {block: until-reset}
`

// shown is a user who is shown campaigns.
func shown(uid string, campaigns ...string) (list []*event.Event) {
	for _, c := range campaigns {
		e := hit(uid, "ad.shown")
		e.Attrs = []event.Attr{{Name: "campaign", Value: event.Value{Kind: event.String, Text: c}}}
		list = append(list, e)
	}
	return list
}

func campaignKey(uid, campaign string) []event.Dim {
	return []event.Dim{{Name: "attrs.campaign", Value: campaign}, {Name: "uid", Value: uid}}
}

// standing is a key's explanation under a rule's first limit.
func (r *rig) standing(m *member, key []event.Dim, rule string) rules.Explanation {
	r.t.Helper()
	list, err := m.Explain(key, "", now())
	if err != nil {
		return rules.Explanation{Count: -1}
	}
	for _, e := range list {
		if ruleOf(e.Rule) == rule {
			return e
		}
	}
	r.t.Fatalf("no rule %s in %v", rule, list)
	return rules.Explanation{}
}

// ruleOf returns the rule of a limit's name.
func ruleOf(limit string) string {
	rule, _, _ := strings.Cut(limit, "/")
	return rule
}

// homeOf returns the partition that owns a key.
func homeOf(key []event.Dim) int32 {
	for _, d := range key {
		if d.Name == "uid" {
			return event.Partition([]byte(d.Value), rigPartitions)
		}
	}
	return event.Partition([]byte(event.FormatKey(key)), rigPartitions)
}

// crash makes a member lose what is not durable, and waits until it has its partitions again.
func (r *rig) crash(m *member) {
	r.t.Helper()
	before := m.owned()
	for _, p := range before {
		p.Fail(errors.New("killed by the test"))
	}
	eventually(r.t, "it has taken its partitions over anew", func() bool {
		return m.up() == nil && !slices.ContainsFunc(m.owned(), func(p *owner.Partition) bool { return slices.Contains(before, p) })
	})
}

// Forgetting a user erases every key that names the user, also from the verdict topic, and the keys
// stay erased after a crash.
func TestForgetErasesEveryKeyOfAUser(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		never := func(c *Config) { c.CheckpointEvery = time.Hour }
		m := r.begin(compile(t, byCampaign), never)
		const campaigns = 150
		for i := range campaigns {
			r.emit(shown("u1", fmt.Sprintf("c&%d", i))...)
		}
		r.emit(shown("u1", "hot", "hot", "hot")...)
		r.emit(shown("u11", "hot", "hot", "hot")...) // a name that begins alike
		eventually(t, "all are counted, and blocked", func() bool {
			return r.count("u1", "per-year", m) == (campaigns+3)*event.One && len(r.inForceOn("attrs.campaign=hot&uid=u1")) == 2 &&
				len(r.inForceOn("attrs.campaign=hot&uid=u11")) == 2
		})
		done, err := m.Command(t.Context(), ask.Command{Name: "forget", Key: uidKey("u1"), Reason: "a test", By: "tester"})
		if err != nil {
			t.Fatal(err)
		}
		if want := campaigns + 2; done.Keys != want {
			t.Errorf("%d keys were erased, want %d", done.Keys, want)
		}
		erased := func(when string) {
			t.Helper()
			for _, key := range [][]event.Dim{campaignKey("u1", "hot"), campaignKey("u1", "c&0"), campaignKey("u1", "c&149")} {
				if e := r.standing(m, key, "per-campaign"); e.Count != 0 || e.Verdict != nil {
					t.Errorf("%s %s stands at %+v", when, event.FormatKey(key), e)
				}
			}
			if got := r.count("u1", "per-year", m); got != 0 {
				t.Errorf("%s u1 has counted %v", when, got)
			}
		}
		erased("afterwards")
		if got := r.namedIn("uid=u1"); len(got) > 0 {
			t.Errorf("the verdict topic names u1 in %q", got)
		}
		r.crash(m)
		erased("after a crash")
		// A new owner republishes what may not have been published, and then erases it again.
		eventually(t, "the verdict topic does not name u1", func() bool { return len(r.namedIn("uid=u1")) == 0 })
		if got := len(r.inForceOn("attrs.campaign=hot&uid=u11")); got != 2 {
			t.Errorf("of u11, who was not forgotten, %d verdicts are in force, want 2", got)
		}
		eventually(t, "the campaign itself has counted 6", func() bool {
			return r.standing(m, []event.Dim{{Name: "attrs.campaign", Value: "hot"}}, "by-shop").Count == 6*event.One
		})
		r.emit(shown("u1", "hot")...)
		eventually(t, "the user counts from zero", func() bool {
			return r.standing(m, campaignKey("u1", "hot"), "per-campaign").Count == event.One && r.count("u1", "per-year", m) == event.One
		})
	})
}

// inForceOn is inForce for a key's text: the rules.
func (r *rig) inForceOn(key string) map[string]verdict.Verdict {
	last := map[string]verdict.Verdict{}
	for _, v := range r.verdicts() {
		if v.KeyText() == key && v.State != verdict.Warn {
			last[v.Rule] = v
		}
	}
	for rule, v := range last {
		if v.State == verdict.Clear {
			delete(last, rule)
		}
	}
	return last
}

// namedIn lists the record keys of the verdict topic whose last record concerns keys with a
// dimension.
func (r *rig) namedIn(dim string) (list []string) {
	last := map[string]bool{}
	for p := range int32(rigPartitions) {
		for _, m := range r.records(r.names.Verdicts, p) {
			last[string(m.Key)] = len(m.Value) > 0
		}
	}
	for key, says := range last {
		if text, _, _ := strings.Cut(key, "|"); says && slices.Contains(strings.Split(text, "&"), dim) {
			list = append(list, key)
		}
	}
	return list
}

// An exempt user is exempt in all keys that name the user, as in a rule file, and also in keys
// created later.
func TestAnExemptionByCommandHoldsForKeysWithMoreDimensions(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		m := r.begin(compile(t, byCampaign), func(c *Config) { c.CheckpointEvery = time.Hour })
		r.emit(shown("u1", "a", "a", "a", "a")...)
		r.emit(shown("u2", "a", "a", "a", "a")...)
		eventually(t, "both are blocked", func() bool {
			return len(r.inForceOn("attrs.campaign=a&uid=u1")) == 2 && len(r.inForceOn("attrs.campaign=a&uid=u2")) == 2
		})
		give := func(c ask.Command) {
			t.Helper()
			c.Name, c.Reason = "exempt", "a test"
			if _, err := m.Command(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		give(ask.Command{Key: uidKey("u1"), Rule: "per-campaign", For: time.Hour})
		if got := r.inForceOn("attrs.campaign=a&uid=u1"); len(got) != 0 {
			t.Errorf("of the exempt user there is in force %v", got)
		}
		if e := r.standing(m, campaignKey("u1", "a"), "per-campaign"); !e.Exempt || e.Count != 4*event.One {
			t.Errorf("the exempt user stands at %+v", e)
		}
		r.crash(m)
		r.emit(shown("u1", "a", "b", "b", "b", "b")...)
		r.emit(shown("u2", "b", "b", "b", "b")...)
		eventually(t, "both are counted on", func() bool {
			return r.standing(m, campaignKey("u1", "b"), "per-campaign").Count == 4*event.One && len(r.inForceOn("attrs.campaign=b&uid=u2")) == 2
		})
		for _, campaign := range []string{"a", "b"} {
			if got := r.inForceOn("attrs.campaign=" + campaign + "&uid=u1"); len(got) != 0 {
				t.Errorf("after a crash there is in force of the exempt user %v", got)
			}
		}
		if got := r.inForce("u1"); len(got) != 1 {
			t.Errorf("by the other rule there is in force %v, want one", got)
		}
		give(ask.Command{Key: uidKey("u1"), Rule: "per-campaign"})
		r.emit(shown("u1", "b")...)
		eventually(t, "the exemption is over", func() bool { return len(r.inForceOn("attrs.campaign=b&uid=u1")) == 2 })
	})
}

// A command on an unknown rule is an error, not a success.
func TestCommandsOnRulesThatThereAreNot(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		m := r.begin(compile(t, byCampaign))
		for rule, ok := range map[string]bool{"": true, "manual": true, "per-campaign": true, "per-campaign/all": true, "per-camp": false, "all": false} {
			_, err := m.Command(t.Context(), ask.Command{Name: "unblock", Key: uidKey("u1"), Rule: rule, Reason: "a test"})
			if ok != (err == nil) || !ok && (!errors.Is(err, ask.ErrCommand) || !strings.Contains(err.Error(), rule)) {
				t.Errorf("rule %q: %v", rule, err)
			}
		}
		w := httptest.NewRecorder()
		m.ServeBlocked(w, httptest.NewRequest(http.MethodGet, "/v1/blocked?partition=0&rule=per-camp", nil))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "per-camp") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
