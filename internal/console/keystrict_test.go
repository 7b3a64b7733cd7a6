package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
)

// strictAnswer is of a key without a verdict: a strict limit has so much counted and under way of 3.
func strictAnswer(uid string, level, held int, grants bool) map[string]any {
	state := map[string]any{"grants": grants, "doubt_since": nil}
	if !grants {
		state["why"] = "Redis lost its memory"
	}
	return map[string]any{"key": map[string]string{"uid": uid}, "partition": 3, "strict": state, "rules": []any{map[string]any{
		"rule": "coupons", "window": "calendar", "count": level, "limit": 3, "from": nil, "until": nil, "frees_at": nil, "latest": "2026-11-21T10:00:30Z", "mode": "enforce", "verdict": nil,
		"strict": map[string]any{"level": level, "held": held, "used": level + held, "limit": 3, "remaining": 3 - level - held, "permits": held, "oldest": nil, "lost_at": nil, "lost": "count", "resets_at": nil},
	}}}
}

// A strict limit denies without a verdict: after an unblock the page said "nothing is enforced", and permits
// stayed denied.
func TestAKeyThatGetsNoPermits(t *testing.T) {
	k := unreachable(t)
	site := start(t, works(), false, func(p *Program, mux *http.ServeMux) {
		p.Keys = k
		mux.HandleFunc("GET /v1/explain", func(w http.ResponseWriter, r *http.Request) {
			uid := r.URL.Query().Get("uid")
			answer := map[string]map[string]any{"full": strictAnswer(uid, 3, 0, true), "flying": strictAnswer(uid, 0, 3, true), "room": strictAnswer(uid, 1, 1, true), "doubt": strictAnswer(uid, 0, 0, false)}
			httpjson.Reply(w, answer[uid])
		})
		mux.HandleFunc("POST /v1/commands", func(w http.ResponseWriter, _ *http.Request) {
			httpjson.Reply(w, map[string]any{"id": "c1", "keys": 1, "verdicts": []any{}})
		})
	})
	const helps, waits = "coupons grants no permit: 3 counted and 0 under way of 3. The end of a verdict does not change that: a reset does.", "0 counted and 3 under way of 3. Nothing helps but that what is under way ends."
	for uid, want := range map[string][]string{
		"full": {"no verdict in force, and no permits", helps}, "flying": {"no verdict in force, and no permits", waits},
		"doubt": {"strict limits in doubt", "Redis lost its memory"}, "room": {"nothing is enforced"},
	} {
		ref := k.refs.Ref([]event.Dim{{Name: "uid", Value: uid}})
		text := says(t, visitor(t), site+"/key/"+ref)
		if !containsAll(text, want...) || uid != "room" && strings.Contains(text, "nothing is enforced") {
			t.Errorf("%s: %s", uid, text)
		}
		text = says(t, visitor(t), site+"/key/"+ref+"/unblock")
		if denied := uid != "room"; denied != containsAll(text, "ends none", want[len(want)-1]) {
			t.Errorf("the preview of %s: %s", uid, text)
		}
	}
	ref := k.refs.Ref([]event.Dim{{Name: "uid", Value: "full"}})
	if text := says(t, visitor(t), site+"/key/"+ref+"/reset"); !containsAll(text, "What is counted under coupons is taken away") {
		t.Error(text)
	}
	c := visitor(t)
	fetch(t, c, http.MethodPost, site+"/key/"+ref+"/unblock", "action=do&reason=asked")
	if _, text, _ := fetch(t, c, http.MethodGet, site+"/key/"+ref, ""); !containsAll(text, "nothing has changed (command c1). The strict limit "+helps) {
		t.Error(mainOf(text))
	}
	for uid, end := range map[string]string{"flying": "The strict limit coupons grants no permit: " + waits, "doubt": "No permits are granted: Redis lost its memory"} {
		path := site + "/key/" + k.refs.Ref([]event.Dim{{Name: "uid", Value: uid}})
		for _, act := range []string{"unblock", "reset"} {
			fetch(t, c, http.MethodPost, path+"/"+act, "action=do&reason=asked")
			if text := says(t, c, path); !strings.Contains(text, "(command c1). "+end) {
				t.Errorf("what a %s of %s has done: %s", act, uid, text)
			}
		}
	}
}

// What is read from verdicts says that it knows nothing of permits, and where they are shown.
func TestViewsOfVerdictsSayThatTheyAreSilentAboutPermits(t *testing.T) {
	k := unreachable(t)
	site := start(t, works(), false, func(p *Program, mux *http.ServeMux) {
		p.Keys = k
		mux.HandleFunc("GET /v1/explain", func(w http.ResponseWriter, r *http.Request) {
			httpjson.Reply(w, strictAnswer(r.URL.Query().Get("uid"), 3, 0, true))
		})
	})
	const silent = "A key that only a strict limit denies has no verdict, and is not listed"
	if text := says(t, visitor(t), site+"/blocked"); !containsAll(text, silent, "Key says where one stands") {
		t.Error(text)
	}
	ref := k.refs.Ref([]event.Dim{{Name: "api", Value: "login"}})
	if text := says(t, visitor(t), site+"/blocked?key="+ref); !containsAll(text, silent, "the key's page says where it stands") {
		t.Error(text)
	}
	if text := says(t, visitor(t), site+"/key/"+ref+"?at=90m"); !containsAll(text, "no verdict was in force", "Permits that strict limits deny are in no audit.") {
		t.Error(text)
	}
}
