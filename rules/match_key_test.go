package rules

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
)

// A key of more than 65,535 bytes wrapped the length that stands ahead of it in memory: its counts were lost, each
// event took memory that nobody freed, and whoever chooses an attribute's value could do that.
func TestAnEventWithAHugeKeyDoesNotMatch(t *testing.T) {
	set := compiled(t, severalShapes)
	m := set.NewMatcher()
	match := func(campaign string) (keys []string, skipped []Skip) {
		e := &event.Event{UID: "u", API: "x", Cost: event.One, Attrs: []event.Attr{{Name: "campaign", Value: event.Value{Kind: event.String, Text: campaign}}}}
		for _, w := range m.Match(e, noon) {
			keys = append(keys, string(w.Key))
		}
		return keys, m.Skipped
	}
	const around = len("attrs.campaign=&uid=u")
	if keys, skipped := match(strings.Repeat("x", event.MaxKey-around)); len(keys) != 2 || len(skipped) != 0 {
		t.Errorf("of the longest: %d keys, %v", len(keys), skipped)
	}
	for _, long := range []string{strings.Repeat("x", event.MaxKey-around+1), strings.Repeat("é", 11_000)} {
		keys, skipped := match(long)
		if len(keys) != 1 || keys[0] != "uid=u" || len(skipped) != 1 || skipped[0].Reason != SkipKey || skipped[0].Rule.Name != "c" {
			t.Errorf("of one more: %.80q, %v", keys, skipped)
		}
	}
	if keys, skipped := match("short again"); len(keys) != 2 || len(skipped) != 0 {
		t.Errorf("afterwards: %q, %v", keys, skipped)
	}
}

// One partition counts all events of a key, so all that a rule with key: all counts go through one partition.
// A key of a user and an API goes where the user's others go.
func TestSentencesOfKeysAndPartitions(t *testing.T) {
	set := compiled(t, header+`  rules:
    - {name: all, key: all, match: {api: "*"}, limit: 5, per: 1m, then: {block: 1m}}
    - {name: user, match: {api: "*"}, limit: 5, per: 1m, then: {block: 1m}}
    - {name: each, key: [uid, api], match: {api: "*"}, limit: 5, per: 1m, then: {block: 1m}}
`)
	m, all := set.NewMatcher(), map[uint32]bool{}
	for _, uid := range []string{"1", "2", "3"} {
		for _, api := range []string{"x", "y"} {
			hashes := map[string]uint32{}
			for _, w := range m.Match(&event.Event{UID: uid, API: api, Cost: event.One}, noon) {
				hashes[string(w.Key)] = w.Hash
			}
			all[hashes["all=true"]] = true
			if of := event.Murmur2(uid); len(hashes) != 3 || hashes["uid="+uid] != of || hashes["api="+api+"&uid="+uid] != of {
				t.Errorf("%s, %s: %v", uid, api, hashes)
			}
		}
	}
	if len(all) != 1 || !all[event.Murmur2("all=true")] {
		t.Errorf("the key of all has the hashes %v", all)
	}
}

// The schema takes the names that Compile takes.
func TestSchemaKnowsDimensions(t *testing.T) {
	pattern := regexp.MustCompile(strings.ReplaceAll(dimensionPattern, `\\`, `\`))
	names := []string{"uid", "api", "all", "ip", "attrs.", "attrs.a", "ip/", "ip/08", "ip/24/", "ip/024", "user", "", "ip/24/56/1"}
	for n := range 140 {
		names = append(names, fmt.Sprintf("ip/%d", n))
		for m := range 140 {
			names = append(names, fmt.Sprintf("ip/%d/%d", n, m))
		}
	}
	for _, name := range names {
		if pattern.MatchString(name) != event.IsDim(name) {
			t.Errorf("%s: the schema says %t", name, !event.IsDim(name))
		}
	}
}
