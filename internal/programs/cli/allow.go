package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/keytext"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/ops"
)

const (
	limitUsage = `
tallygate limit gives a key a limit of its own under one rule, at once: it takes the place of the one
that the key has by a command, an override, a tier or the rule. Without --until and --for it holds
until --end ends it. The key has the dimensions that the rule counts by. --list shows which limits and
grants there are.

  tallygate limit uid=42 --rule api-quota --limit 5000 --for 30d --reason "contract 7"
  tallygate limit uid=42 --rule api-quota --end --reason "contract 7 ended"
  tallygate limit --list
` + afterUsage

	grantUsage = `
tallygate grant adds to a key's limit under one rule, at once. Without --until and --for it holds until
the end of the window in which the key stands, where the window has one. With --id the same grant may
be given again, and counts once. --end ends the grant with that id. --list shows which limits and
grants there are.

  tallygate grant uid=42 --rule api-quota +500 --reason "invoice 12" --id invoice-12
  tallygate grant uid=42 --rule api-quota --end --id invoice-12 --reason "refunded"
` + afterUsage
)

// allow is `tallygate limit` or grant.
type allow struct{ usage, kind string }

// allowing is one run of it. Its answer is written as it came with --json, since scripts read fields that people are
// not shown.
type allowing struct {
	allow
	api            *api.Client
	stdout, stderr io.Writer
	body           api.Command
	json           bool
}

func (v allow) run(ctx context.Context, c *call) error {
	o := c.options(v.usage)
	k := allowing{allow: v, stdout: c.stdout, stderr: c.stderr, body: api.Command{Command: v.kind}}
	at := apiclient.NewOptions(o)
	o.StringVar(&k.body.Reason, "reason", "", "why, for the audit; `text`, required")
	o.StringVar(&k.body.By, "by", operator(),
		"who gives the command, for the audit; where you show a token or a certificate, for whom; a `name`")
	o.BoolVar(&k.json, "json", false, "write the aggregator's answer as it is")
	o.StringVar(&k.body.Rule, "rule", "", "the `rule` that it is about, or rule/limit; required")
	o.StringVar(&k.body.Until, "until", "",
		"the `time` at which it ends, such as 2026-12-31T00:00:00Z, or period-end: the end of the window in which the key stands")
	o.StringVar(&k.body.For, "for", "", "in place of --until: how long it holds, such as 30m or 7d; a `time`")
	id, end := "an `id`: with the same one the command does nothing a second time", "end the key's limit"
	if v.kind == api.KindLimit {
		o.StringVar((*string)(&k.body.Limit), "limit", "", "the `number` that is the key's limit, as in rules, or unlimited; required")
	} else {
		id, end = id+"; with --end that of the grant", "end the grant with the --id"
	}
	o.StringVar(&k.body.ID, "id", "", id)
	o.BoolVar(&k.body.End, "end", false, end)
	list := o.Bool("list", false, "give no command: list limits and grants, all or those of keys with these dimensions")
	if err := o.Parse(c.args); err != nil {
		return err
	}
	var err error
	if k.api, err = at.Open(); err != nil {
		return err
	}
	defer k.api.Close()
	if *list {
		return k.list(ctx, o.Args())
	}
	return k.send(ctx, o.Args())
}

// send checks what was given before it asks anybody.
func (k *allowing) send(ctx context.Context, args []string) error {
	var dims []string
	for _, arg := range args {
		amount, is := strings.CutPrefix(arg, "+")
		if !is || k.kind != api.KindGrant {
			dims = append(dims, arg)
			continue
		}
		if k.body.Amount != "" {
			return &ops.UsageError{Err: errors.New("name one amount, as in +500")}
		}
		k.body.Amount = api.NumberText(amount)
	}
	if err := k.complete(); err != nil {
		return &ops.UsageError{Err: err}
	}
	key, err := parseKey(dims)
	if err != nil {
		return &ops.UsageError{Err: err}
	}
	k.body.Key = map[string]string{}
	for _, d := range key {
		k.body.Key[d.Name] = d.Value
	}
	answer, err := k.api.Post(ctx, "/v1/commands", k.body)
	if err != nil {
		return err
	}
	if k.json {
		_, err = k.stdout.Write(answer)
		return err
	}
	result, err := api.Decode[api.Commanded](answer, nil)
	if err != nil {
		return err
	}
	k.write(result)
	return nil
}

// complete refuses what the aggregator would, with the names of options, and without a question to it.
func (k *allowing) complete() error {
	b := &k.body
	switch {
	case b.Reason == "":
		return errors.New("say why: --reason TEXT is kept in the audit")
	case b.Rule == "":
		return errors.New("say which limit: --rule RULE, or RULE/LIMIT")
	case b.End && k.kind == api.KindGrant && b.ID == "":
		return errors.New("say which grant ends: --id ID; --list shows them")
	case b.End:
		return nil
	case k.kind == api.KindGrant && b.Amount == "":
		return errors.New("say how much, as in +500")
	case k.kind == api.KindLimit && b.Limit == "":
		return errors.New("say which limit: --limit NUMBER, or --limit unlimited")
	}
	return nil
}

// write reports the command's effect.
func (k *allowing) write(r *api.Commanded) {
	key := keytext.FormatMap(k.body.Key)
	(&keyCommand{stdout: k.stdout}).writeVerdicts(r)
	switch {
	case k.body.End && k.kind == api.KindGrant:
		fmt.Fprintf(k.stdout, "the grant %s of %s ends now\n", cell(k.body.ID, 128), key)
	case k.body.End:
		fmt.Fprintf(k.stdout, "the limit of %s by a command under %s ends now\n", key, cell(k.body.Rule, 128))
	case r.Given != nil:
		has := "has"
		if r.Repeated {
			has = "already had"
		}
		g := r.Given
		fmt.Fprintf(k.stdout, "%s %s %s under %s%s (id %s)\n", key, has, allowanceText(g), cell(g.Rule, 128), untilText(g.Until), cell(g.ID, 128))
	}
}

// allowanceText tells an amount in words. The 0 of a limit is no limit at all, where that of a count would be nothing.
func allowanceText(a *api.Allowance) string {
	switch {
	case a.Kind == api.KindGrant:
		return "+" + a.Amount.String()
	case a.Amount == 0:
		return "no limit"
	}
	return "a limit of " + a.Amount.String()
}

// untilText tells its end, which may be none.
func untilText(until event.Micros) string {
	if until == event.NoTime {
		return " until it is ended"
	}
	return " until " + clock(until) + left(until)
}

// givenBy names who gave it.
func givenBy(a *api.Allowance) string { return giver(a.By, a.OnBehalfOf) }
