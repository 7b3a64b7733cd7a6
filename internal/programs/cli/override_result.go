package cli

import (
	"context"
	"fmt"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/keytext"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/verdict"
)

// shownVerdicts bounds the verdicts, and the keys, that are listed: a user may have thousands of keys.
const shownVerdicts = 20

// sure asks before a command reaches keys that do not name one user: there may be very many.
func (k *keyCommand) sure(ctx context.Context, key []event.Dim) error {
	if k.body.Key["uid"] != "" {
		return nil
	}
	q := api.KeyQuery(key)
	q.Set("limit", "0")
	a, err := k.api.Explain(ctx, q)
	if err != nil {
		return fmt.Errorf("count the keys that contain %s: %w", keytext.Format(key), err)
	}
	if a.More == 0 {
		return nil
	}
	fmt.Fprintf(k.stderr, "%s is in %s with more dimensions, of whatever user.\n%s them all? (y/n; --exact is only the key itself) ",
		keytext.Format(key), plural(a.More, "key"), map[string]string{"unblock": "Unblock", "reset": "Reset"}[k.body.Command])
	return k.confirmed(ctx)
}

// stillDenied names the strict limits that grant no permit after a command that ends verdicts. These limits have
// none, so whoever asked to let somebody in would take the command's answer for that.
func (k *keyCommand) stillDenied(ctx context.Context, key []event.Dim) {
	if k.body.Command != "unblock" && k.body.Command != "reset" {
		return
	}
	q := api.KeyQuery(key)
	if k.body.Exact {
		q.Set("exact", "true")
	}
	a, err := k.api.Explain(ctx, q)
	if err != nil {
		fmt.Fprintf(k.stderr, "whether strict limits grant permits is not known: %v\n", err)
		return
	}
	for i, line := range (*explainAnswer)(a).denials(k.body.Rule) {
		if i == shownVerdicts {
			fmt.Fprintln(k.stderr, "and more: tallygate explain shows them")
			return
		}
		fmt.Fprintln(k.stderr, line)
	}
}

// did reports whether a command changed anything.
func (k *keyCommand) did(r *api.Commanded) bool {
	switch k.body.Command {
	case "unblock":
		return len(r.Verdicts) > 0
	case "reset", "forget":
		return r.Keys > 0 || len(r.Verdicts) > 0
	case "exempt":
		return len(r.Verdicts) > 0 || r.Ended > 0 || !k.endsExemption()
	}
	return true
}

// endsExemption reports whether the command is exempt --for 0.
func (k *keyCommand) endsExemption() bool {
	d, err := parseFor(k.body.For)
	return k.body.Command == "exempt" && err == nil && d == 0
}

// write reports the command's effect; to have none is an error.
func (k *keyCommand) write(r *api.Commanded) error {
	key := keytext.FormatMap(k.body.Key)
	if !k.did(r) {
		k.writeExemptions(r, "still ")
		return fmt.Errorf("%s (command %s)", k.nothing(key), r.ID)
	}
	switch k.body.Command {
	case "forget":
		fmt.Fprintf(k.stdout, "%s erased (command %s)\n", plural(r.Keys, "key"), r.ID)
	case "reset":
		k.writeReset(r)
	}
	k.writeVerdicts(r)
	switch {
	case k.endsExemption():
		if r.Ended > 0 {
			fmt.Fprintf(k.stdout, "the exemption of %s ends now\n", key)
		}
		k.writeExemptions(r, "still ")
	case k.body.Command == "exempt":
		k.writeExemptions(r, "")
		if len(r.Exemptions) == 0 { // an older aggregator
			fmt.Fprintf(k.stdout, "%s is exempt (command %s)\n", key, r.ID)
		}
	}
	return nil
}

// nothing says that a command has changed nothing.
func (k *keyCommand) nothing(key string) string {
	and := ", nor on a key that contains it"
	if k.body.Exact {
		and = ""
	}
	rule := ""
	if k.body.Rule != "" {
		rule = " by " + k.body.Rule
	}
	switch k.body.Command {
	case "unblock":
		return fmt.Sprintf("nothing was in force%s on %s%s", rule, key, and)
	case "reset":
		return fmt.Sprintf("nothing was counted%s on %s%s", rule, key, and)
	case "forget":
		return fmt.Sprintf("nothing was kept of %s", key)
	}
	return fmt.Sprintf("%s had no exemption by a command%s that is about %s", key, rule, map[bool]string{true: "all rules", false: "this rule"}[rule == ""])
}

// writeVerdicts lists the first of them: those that a command ended, and those that it issued, with their end.
func (k *keyCommand) writeVerdicts(r *api.Commanded) {
	for i, v := range r.Verdicts {
		if i == shownVerdicts {
			fmt.Fprintf(k.stdout, "and at least %d more: tallygate audit lists them all\n", len(r.Verdicts)-i)
			return
		}
		line := fmt.Sprintf("%s of %s ends now", cell(v.Rule, 128), keytext.Format(v.Key))
		if v.State != verdict.Clear {
			line = fmt.Sprintf("%s: %s %s%s", keytext.Format(v.Key), v.Action, words.Until(v.Until), left(v.Until))
		}
		fmt.Fprintln(k.stdout, line)
	}
}

// writeReset lists the first keys that were emptied; the answer itself names at most 1000.
func (k *keyCommand) writeReset(r *api.Commanded) {
	for i, key := range r.Each {
		if i == shownVerdicts {
			fmt.Fprintf(k.stdout, "and %d more: --json, and tallygate audit --json, list more of them\n", r.Keys-i)
			return
		}
		fmt.Fprintf(k.stdout, "%s counts from zero\n", keytext.FormatMap(key))
	}
}

// writeExemptions lists the key's exemptions.
func (k *keyCommand) writeExemptions(r *api.Commanded, still string) {
	for i := range r.Exemptions {
		e := &r.Exemptions[i]
		fmt.Fprintf(k.stdout, "%s is %sexempt from %s %s\n", exemptedText(e), still, rulesText(e), exemptionText(e))
	}
}
