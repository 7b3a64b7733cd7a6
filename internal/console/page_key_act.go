package console

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/rules"
)

// keyAct is something that a form does to a key.
type keyAct struct {
	name    string // in the address
	command string // in the aggregator's API
	title   string
	label   string // of the button
	about   string
	least   access.Role
	lasts   string // the value that "for how long" begins with; "": it asks for none
	rule    bool   // one rule, or all
	exact   bool   // it may leave out keys that contain this one
	confirm bool   // the key has to be typed
	endsNow bool   // --for 0
}

func keyActs() []keyAct {
	return []keyAct{
		{name: "unblock", command: "unblock", title: "Unblock", label: "Unblock", least: access.Operator, rule: true, exact: true,
			about: "Ends the verdicts in force. The counts stay: the next event may trigger another verdict, unless you reset or exempt the key."},
		{name: "block", command: "block", title: "Block", label: "Block", least: access.Operator, lasts: "1h",
			about: "Blocks the key for all APIs, whatever it has counted. The verdict's rule is called manual."},
		{name: "reset", command: "reset", title: "Reset the counts", label: "Reset", least: access.Operator, exact: true, rule: true,
			about: "Ends the verdicts in force and sets the counts to zero. Counts that were reset cannot be brought back."},
		{name: "exempt", command: "exempt", title: "Exempt", label: "Exempt", least: access.Operator, lasts: "24h", rule: true,
			about: "Ends the verdicts in force. The key is counted, and not judged. With a uid it also covers keys that contain it."},
		{name: "end-exemption", command: "exempt", title: "End the exemption", label: "End it now", least: access.Operator, rule: true, endsNow: true,
			about: "Ends exemptions that were given by command. Those of the rule file end by a change of that file."},
		{name: "erase", command: "forget", title: "Erase", label: "Erase for good", least: access.Admin, confirm: true,
			about: "Ends the verdicts in force, and erases the counts and the verdicts. It cannot be undone. Events and the audit stay until Kafka deletes them by age."},
	}
}

func keyActPage() page {
	return page{
		name: "key-act", path: "/key/{ref}/{do}", title: "One key", under: "key-search", least: access.Viewer,
		load:    loadKeyAct,
		actions: map[string]action{"do": {least: access.Viewer, do: doKeyAct}}, // the aggregator decides who may
	}
}

// actView is the form of an action, with what it would do.
type actView struct {
	*keyAct
	Title, About, Label string
	Text, Back          string
	Preview             []string
	Wrong               *Problem // why there is no preview
	Rules               []string // in force, or that count the key
	Rule, For           string
	Lasts, HasRule      bool
	Exact, Confirm      bool
	Ticket              string // the pattern
	Weak                string // why the reader may not; "": they may
}

func (r *request) keyAct() (*keyAct, error) {
	all := keyActs()
	i := slices.IndexFunc(all, func(a keyAct) bool { return a.name == r.PathValue("do") })
	if i < 0 {
		return nil, &Problem{Status: http.StatusNotFound, Title: "There is no such action", Detail: "The address names none.", Do: "Go back to the key.", Link: "/key"}
	}
	return &all[i], nil
}

func loadKeyAct(r *request) (any, error) {
	k, err := r.keys()
	if err != nil {
		return nil, err
	}
	key, err := r.keyOf(k)
	if err != nil {
		return nil, err
	}
	act, err := r.keyAct()
	if err != nil {
		return nil, err
	}
	e := r.eyesOf(k, key)
	v := &actView{keyAct: act, Title: act.title, About: act.about, Label: act.label, Text: e.text(key), Back: e.path(key), Rule: r.query().Get("rule"), For: act.lasts,
		Lasts: act.lasts != "", HasRule: act.rule, Exact: act.exact, Confirm: act.confirm, Ticket: k.ticket}
	r.Title = act.title + " " + v.Text
	if err := r.Who.May(act.least); err != nil {
		v.Weak = err.Error()
	}
	if text := r.query().Get("for"); text != "" && v.Lasts {
		v.For = text
	}
	a, err := r.explain(key)
	if err != nil {
		v.Wrong = problemOf(err)
		return v, nil
	}
	v.Preview, v.Rules = act.preview(e, a)
	return v, nil
}

// preview predicts the action's effect, by the key's position now, and names the rules that it may be about.
func (act *keyAct) preview(e *eyes, a *explained) (lines, names []string) {
	list := a.inForce()
	keys := map[string]bool{}
	byRule := map[string]int{}
	for i := range list {
		keys[event.FormatKey(list[i].Key)] = true
		byRule[list[i].Rule]++
	}
	names = slices.Sorted(maps.Keys(byRule))
	ends := "No verdict is in force: it ends none."
	if len(list) > 0 {
		ends = fmt.Sprintf("Ends %s in %s.", plural(len(list), "verdict"), plural(len(keys), "key"))
	}
	denials, denying := a.denials()
	others := len(a.Others) + a.More
	switch act.command {
	case "block":
		return []string{fmt.Sprintf("Blocks %s.", e.text(dimsOf(a.Key)))}, nil
	case "unblock":
		lines = append(lines, ends)
		for _, name := range names {
			lines = append(lines, fmt.Sprintf("Only the rule %s: ends %s.", name, plural(byRule[name], "verdict")))
		}
		lines = append(lines, a.without()...)
	case "reset":
		lines = append(lines, ends, fmt.Sprintf("Sets the counts of %s to zero.", plural(1+others, "key")))
		if len(denials) > 0 {
			lines = append(lines, fmt.Sprintf("What is counted under %s is taken away; permits that are under way stay until their actions end.", strings.Join(dedup(denying), ", ")))
		}
		names = limitsOf(a)
	case "forget":
		lines = append(lines, ends, fmt.Sprintf("Erases the counts and verdicts of %s.", plural(1+others, "key")))
	case "exempt":
		names = limitsOf(a)
		if act.endsNow {
			n := 0
			for _, x := range a.exemptions() {
				if x.From == "command" {
					n++
				}
			}
			return []string{fmt.Sprintf("%s by command %s for this key.", plural(n, "exemption"), map[bool]string{true: "holds", false: "hold"}[n == 1])}, dedup(names)
		}
		lines = append(lines, ends)
	}
	if others > 0 && act.exact {
		verb := "contain this one, and are"
		if others == 1 {
			verb = "contains this one, and is"
		}
		lines = append(lines, fmt.Sprintf("%s %s concerned, too, unless you choose only this key.", plural(others, "key"), verb))
	}
	if a.More > 0 {
		lines = append(lines, fmt.Sprintf("%s were only counted, so there may be more verdicts than are named here.", plural(a.More, "further key")))
	}
	for _, m := range a.Missing {
		lines = append(lines, fmt.Sprintf("Partition %d did not answer, so there may be more: %s.", m.Partition, m.Reason))
	}
	return lines, dedup(names)
}

func dedup(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// doKeyAct sends the command with the reader's credential.
func doKeyAct(r *request) (result, error) {
	k, err := r.keys()
	if err != nil {
		return result{}, err
	}
	key, err := r.keyOf(k)
	if err != nil {
		return result{}, err
	}
	act, err := r.keyAct()
	if err != nil {
		return result{}, err
	}
	body, err := act.body(r, k, key)
	if err != nil {
		return result{}, err
	}
	did, err := r.API.Command(r.ctx(), body)
	if err != nil {
		return result{}, err
	}
	e := r.eyesOf(k, key)
	done := result{Text: act.did(e, body, key, did, r.Now), To: e.path(key), Undo: act.undo(e, key, body, did, r.Now)}
	if act.command == "unblock" || act.command == "reset" { // who was to be let in may still get no permit
		if a, err := r.explain(key); err == nil {
			done.Text = strings.Join(append([]string{done.Text}, a.without()...), " ")
		}
	}
	return done, nil
}

// body is the command that a form asks for.
func (act *keyAct) body(r *request, k *Keys, key []event.Dim) (*api.Command, error) {
	f := r.PostForm
	b := &api.Command{Command: act.command, Key: dimsMap(key), Reason: strings.TrimSpace(f.Get("reason"))}
	if b.Reason == "" {
		return nil, invalid("Say why", "A reason is required: it is kept in the audit.")
	}
	if ticket := strings.TrimSpace(f.Get("ticket")); ticket != "" {
		if k.ticket != "" && !ticketFits(k.ticket, ticket) {
			return nil, invalid("This is not a ticket", fmt.Sprintf("Tickets have the form %s.", k.ticket))
		}
		b.Reason += " (ticket " + ticket + ")"
	}
	if act.rule {
		b.Rule = strings.TrimSpace(f.Get("rule"))
	}
	b.Exact = act.exact && f.Get("exact") != ""
	switch {
	case act.endsNow:
		b.For = "0"
	case act.lasts != "":
		b.For = strings.TrimSpace(f.Get("for"))
		if d, err := parseSpan(b.For); err != nil || d <= 0 {
			return nil, invalid("For how long?", "Write a time such as 30m, 2h or 7d.")
		}
	}
	if act.confirm {
		if typed, err := parseKey(f.Get("confirm")); err != nil || !slices.Equal(typed, key) {
			return nil, invalid("The key was not typed", "Type the key exactly, with its dimension, to confirm that it is the one to erase.")
		}
	}
	return b, nil
}

func invalid(title, detail string) *Problem {
	return &Problem{Status: http.StatusUnprocessableEntity, Title: title, Detail: detail, Do: "Correct the form and send it again. Nothing was done."}
}

func ticketFits(pattern, ticket string) bool {
	p, err := regexp.Compile("^(?:" + pattern + ")$")
	return err == nil && p.MatchString(ticket)
}

// parseSpan reads a duration as rules have it.
func parseSpan(text string) (time.Duration, error) {
	d, err := rules.ParseDuration(text)
	return d.Duration(), err
}

// did describes the command's effect.
func (act *keyAct) did(e *eyes, b *api.Command, key []event.Dim, did *api.Commanded, now time.Time) string {
	text, ended := e.text(key), len(did.Verdicts)
	id := fmt.Sprintf(" (command %s)", did.ID)
	switch {
	case act.name == "unblock" && ended == 0:
		return fmt.Sprintf("Nothing was in force for %s: nothing has changed%s.", text, id)
	case act.name == "unblock":
		return fmt.Sprintf("Unblocked %s: %s ended%s.", text, plural(ended, "verdict"), id)
	case act.name == "block":
		d, _ := parseSpan(b.For)
		return fmt.Sprintf("Blocked %s until %s%s.", text, now.Add(d).UTC().Format("2006-01-02 15:04:05 UTC"), id)
	case act.name == "reset":
		return fmt.Sprintf("Reset %s: %s set to zero, %s ended%s.", text, plural(did.Keys, "key"), plural(ended, "verdict"), id)
	case act.name == "erase":
		return fmt.Sprintf("Erased %s: %s, %s ended%s.", text, plural(did.Keys, "key"), plural(ended, "verdict"), id)
	case act.endsNow && did.Ended == 0:
		return fmt.Sprintf("No exemption by command held for %s: nothing has changed%s.", text, id)
	case act.endsNow:
		return fmt.Sprintf("Ended %s of %s%s.", plural(did.Ended, "exemption"), text, id)
	}
	d, _ := parseSpan(b.For)
	return fmt.Sprintf("Exempted %s until %s, %s ended%s.", text, now.Add(d).UTC().Format("2006-01-02 15:04:05 UTC"), plural(ended, "verdict"), id)
}
