package conformance

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// noon is the time of all checks.
var noon = event.FromTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))

// world holds the table that a request meets, and the door's options.
type world struct {
	verdicts   []verdict.Verdict
	stale      bool            // the table has had no snapshot
	onStale    enforce.OnStale // what it answers then
	off        bool            // the kill switch is on
	asks       bool            // there is an Admitter
	idle       bool            // no rule asks it
	answers    enforce.Answers
	emitDenied bool
}

// question is a request to POST /send, and its world. The Admitter answers by the user.
type question struct {
	about     string
	users     []string // the values of the header that says who asks
	method    string   // "" is POST
	plan      string   // an attribute
	languages string
	permit    string // that it brings
	world
}

// on is a verdict on a key, for 90.5 s from noon.
func on(key string, change ...func(*verdict.Verdict)) verdict.Verdict {
	dims, err := event.ParseKey([]byte(key))
	if err != nil {
		panic(err)
	}
	v := verdict.Verdict{
		Rule: "send-detector", Public: "sends", Key: dims, Action: verdict.ActBlock, APIs: []string{"*"}, Limit: 5 * event.One,
		Since: noon - event.Minute, Until: noon + 90*event.Second + event.Second/2, Seq: 1,
	}
	for _, c := range change {
		c(&v)
	}
	return v
}

func does(a verdict.Action) func(*verdict.Verdict) {
	return func(v *verdict.Verdict) { v.Action = a }
}

func apis(names ...string) func(*verdict.Verdict) {
	return func(v *verdict.Verdict) { v.APIs = names }
}

func by(rule, public string) func(*verdict.Verdict) {
	return func(v *verdict.Verdict) { v.Rule, v.Public = rule, public }
}

func from(since, until event.Micros) func(*verdict.Verdict) {
	return func(v *verdict.Verdict) { v.Since, v.Until = noon+since, noon+until }
}

// left makes it a quota: 3 of 5 are left.
func left(v *verdict.Verdict) { v.State, v.Count = verdict.Left, 2*event.One }

func all(v ...verdict.Verdict) world { return world{verdicts: v} }

func (w world) with(change func(*world)) world {
	change(&w)
	return w
}

func (w world) answering(a enforce.Answers) world {
	w.answers = a
	return w
}

func (w world) asking() world {
	w.asks = true
	return w
}

func (w world) closed(do enforce.OnStale) world {
	w.stale, w.onStale = true, do
	return w
}

func switched(w *world) { w.off = true }

var (
	german   = map[string]string{"": "Slow down: {rule}, {seconds} s.", "de": "Langsam: {rule}, {seconds} s."}
	renamed  = map[string]enforce.PublicRule{"send-detector": {Name: "messages", Messages: german}}
	blocked  = all(on("uid=7"))
	quotas   = all(on("uid=7", left))
	none     = world{}
	xAnswers = enforce.Answers{XRateLimit: true}
	pk       = enforce.Answers{PartitionKey: []byte("secret")}
)

// questions for every door.
var questions = []question{
	{about: "no verdict", world: none},
	{about: "a block", world: blocked},
	{about: "a block without a public name", world: all(on("uid=7", by("send-detector", "")))},
	{about: "a block by command", world: all(on("uid=7", func(v *verdict.Verdict) { v.Limit = 0 }))},
	{about: "a challenge", world: all(on("uid=7", does(verdict.ActChallenge)))},
	{about: "a throttle that is far", world: all(on("uid=7", does(verdict.ActThrottle)))},
	{about: "a log", world: all(on("uid=7", does(verdict.ActLog)))},
	{about: "a shadow", world: all(on("uid=7", func(v *verdict.Verdict) { v.Mode = verdict.Shadow }))},
	{about: "a warning", world: all(on("uid=7", func(v *verdict.Verdict) { v.State = verdict.Warn }))},
	{about: "another API", world: all(on("uid=7", apis("get.*")))},
	{about: "a pattern of APIs", world: all(on("uid=7", apis("get.*", "post.*")))},
	{about: "another user", world: all(on("uid=8"))},
	{about: "an address", world: all(on("ip=192.0.2.1"))},
	{about: "a network", world: all(on("ip/24=192.0.2.0/24"))},
	{about: "an attribute", plan: "free", world: all(on("attrs.plan=free"))},
	{about: "another attribute", plan: "pro", world: all(on("attrs.plan=free"))},
	{about: "two dimensions", plan: "free", world: all(on("attrs.plan=free&uid=7"))},
	{about: "one of two dimensions", world: all(on("attrs.plan=free&uid=7"))},
	{about: "a key of the API", world: all(on("api=post.send"))},
	{about: "a key of all", world: all(on("all=true"))},
	{about: "it has ended", world: all(on("uid=7", from(-event.Hour, 0)))},
	{about: "it has not begun", world: all(on("uid=7", from(event.Second, event.Hour)))},
	{about: "the last moment", world: all(on("uid=7", from(-event.Hour, 1)))},
	{about: "a day", world: all(on("uid=7", from(-event.Hour, event.Day)))},
	{about: "two ends", world: all(on("uid=7"), on("ip=192.0.2.1", by("other", "others"), from(0, event.Hour)))},
	{about: "two actions", world: all(on("uid=7"), on("ip=192.0.2.1", by("other", "others"), does(verdict.ActThrottle), from(0, event.Hour)))},
	{about: "a block and a log", world: all(on("uid=7", does(verdict.ActLog), by("other", "others")), on("ip=192.0.2.1"))},
	{about: "a stacked limit", world: all(on("uid=7", by("send-detector/burst", "bursts"))).answering(enforce.Answers{Rules: renamed})},
	{about: "nobody", users: []string{}, world: blocked},
	{about: "an empty user", users: []string{""}, world: blocked},
	{about: "two users", users: []string{"8", "7"}, world: blocked},
	{about: "two users that are one", users: []string{"8", "8"}, world: none},
	{about: "HEAD", method: "HEAD", world: blocked},
	{about: "GET", method: "GET", world: all(on("uid=7", apis("get.send")))},

	{about: "stale, last known", world: blocked.closed(enforce.LastKnown)},
	{about: "stale, open", world: blocked.closed(enforce.Open)},
	{about: "stale, closed", world: none.closed(enforce.Closed)},
	{about: "stale, closed, and a block", world: blocked.closed(enforce.Closed)},
	{about: "stale, closed, another status", world: none.closed(enforce.Closed).answering(enforce.Answers{UnavailableStatus: 429})},
	{about: "the kill switch", world: blocked.with(switched)},
	{about: "the kill switch while it is closed", world: none.closed(enforce.Closed).with(switched)},

	{about: "a permit", world: none.asking()},
	{about: "no permit is needed", users: []string{"none"}, world: none.asking()},
	{about: "no permit", users: []string{"limited"}, world: none.asking()},
	{about: "a permit in doubt", users: []string{"doubt"}, world: none.asking()},
	{about: "a permit in doubt, another status", users: []string{"doubt"}, world: none.asking().answering(enforce.Answers{UnavailableStatus: 429})},
	{about: "an error for a permit", users: []string{"wrong"}, world: none.asking()},
	{about: "no rule asks", users: []string{"limited"}, world: none.asking().with(func(w *world) { w.idle = true })},
	{about: "a permit and the kill switch", users: []string{"limited"}, world: none.asking().with(switched)},
	{about: "a block, and a permit", world: blocked.asking()},
	{about: "a log, and a permit", world: all(on("uid=7", does(verdict.ActLog))).asking()},
	{about: "a stale table, and a permit", world: none.closed(enforce.Closed).asking()},
	{about: "a permit of a proxy", users: []string{"limited"}, permit: `{"permit":"given"}`, world: none.asking()},
	{about: "a permit of a proxy, and a block", permit: `{"permit":"given"}`, world: blocked.asking()},
	{about: "no permit, told in German", users: []string{"limited"}, languages: "de", world: none.asking().answering(enforce.Answers{Messages: german})},

	{about: "status 403", world: blocked.answering(enforce.Answers{Status: 403})},
	{about: "status 403 without a permit", users: []string{"limited"}, world: none.asking().answering(enforce.Answers{Status: 403})},
	{about: "a type and a title", world: blocked.answering(enforce.Answers{Type: "https://example.org/limit", Title: "Too much"})},
	{about: "no RateLimit", world: blocked.answering(enforce.Answers{NoRateLimit: true})},
	{about: "the older fields", world: blocked.answering(xAnswers)},
	{about: "the older fields of a permit", world: none.asking().answering(xAnswers)},
	{about: "another name", world: blocked.answering(enforce.Answers{Rules: renamed})},
	{about: "in German", languages: "fr, de-AT;q=0.5", world: blocked.answering(enforce.Answers{Rules: renamed})},
	{about: "in no language that there is", languages: "fr", world: blocked.answering(enforce.Answers{Messages: german})},
	{about: "a partition key", world: blocked.answering(pk)},
	{about: "a partition key of a throttle", world: all(on("uid=7", does(verdict.ActThrottle))).answering(pk)},

	{about: "what is left", world: quotas},
	{about: "what is left, and a permit", world: quotas.asking()},
	{about: "what is left, and a block", world: all(on("uid=7", left, by("quota", "quota")), on("uid=7"))},
	{about: "what is left of another API", world: all(on("uid=7", left, apis("get.*")))},
	{about: "what is left of no name", world: all(on("uid=7", left, by("quota", "")))},
	{about: "what is left, in older fields", world: quotas.answering(xAnswers)},
	{about: "what is left by a key", world: quotas.answering(pk)},
	{about: "what is left and the kill switch", world: quotas.with(switched)},
	{about: "each denial is emitted", world: blocked.with(func(w *world) { w.emitDenied = true })},
}

// table makes the world's.
func (w *world) table(t *testing.T) *enforce.Table {
	t.Helper()
	table, err := enforce.NewTable(enforce.Config{Now: func() event.Micros { return noon }, OnStale: w.onStale, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if w.stale {
		table.Apply(0, w.verdicts)
	} else {
		table.Replace(0, w.verdicts)
		table.Heartbeat(0, math.MaxInt64) // in step for ever
	}
	table.SetEnabled(!w.off)
	return table
}

// clerk answers by the user as of noon, and notes what it hears, of events too.
type clerk struct {
	idle           bool
	asked, emitted []string
	ended          []string // permits
}

func (c *clerk) Idle() bool { return c.idle }

func (c *clerk) AdmitRequest(_ context.Context, r enforce.Request) (enforce.Admission, error) {
	user := ""
	for _, d := range r.Dims {
		if d.Name == "uid" {
			user = d.Value
		}
	}
	c.asked = append(c.asked, user+" "+r.API)
	allowed := enforce.Decision{Allowed: true}
	switch user {
	case "none":
		return enforce.Admission{Decision: allowed}, nil
	case "limited":
		v := &verdict.Verdict{Rule: "daily-detector", Public: "per day", Action: verdict.ActBlock, Limit: 5 * event.One}
		return enforce.Admission{Decision: enforce.RefuseAt(noon, v, 90*time.Second)}, nil
	case "doubt":
		return enforce.Admission{Decision: enforce.Unknown()}, nil
	case "wrong":
		return enforce.Admission{Decision: allowed}, errors.New("wrong")
	}
	return enforce.Admission{
		Decision: allowed, Permit: event.Permit{ID: "permit of " + user, At: 7}, Held: lent{c},
		Standing: enforce.Standing{Rule: "daily-detector", Public: "per day", Limit: 5 * event.One, Remaining: 3 * event.One},
	}, nil
}

// lent is a permit that the clerk has given.
type lent struct{ c *clerk }

func (l lent) Done(outcome string) { l.c.ended = append(l.c.ended, outcome) }
func (l lent) Cancel()             { l.c.ended = append(l.c.ended, "cancelled") }

func (l lent) Leave() { l.c.ended = append(l.c.ended, "left") }

// Emit notes an event.
func (c *clerk) Emit(e event.Event) bool {
	c.emitted = append(c.emitted, e.Outcome+" "+e.UID+" "+e.API+" "+e.Permit.ID)
	return true
}
