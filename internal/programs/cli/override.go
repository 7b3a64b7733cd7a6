package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/rules"
)

// override is one of the commands that overrule the rules for a key.
type override struct {
	usage string
	sent  string // its name in the HTTP API; "" if that is the command's
	lasts bool   // it takes --for
	rule  bool   // it takes --rule
	many  bool   // it takes --all: without a key it concerns every blocked key

	reaches bool // all keys that contain the one that is named: it takes --exact and --yes
	list    bool // it takes --list
}

const (
	blockUsage = `
tallygate block blocks a key for a time, whatever it has counted, for all APIs. The verdict's rule
is called manual.

  tallygate block uid=42 --for 2h --reason "stolen card, ticket 123"
` + afterUsage

	unblockUsage = `
tallygate unblock ends the verdicts in force for a key, and for all keys that contain its dimensions;
--exact leaves these alone. The counters stay: the next event may trigger another verdict, unless you
reset or exempt the key. So do the levels of strict limits: where these grant no permit it says so, and
a reset helps. With --rule or --all and no key it unblocks every key that the rule, or any
rule, has blocked: it says how many, and asks first. It also asks when a key without a uid is contained
in others. The exit status is 1 if nothing was in force.

  tallygate unblock uid=42 --reason "called support"
  tallygate unblock uid=42 --rule search-combined --reason "a bug in the app"
  tallygate unblock --rule search-combined --reason "a bad rule went out"
` + afterUsage

	resetUsage = `
tallygate reset ends the verdicts in force for a key, and for all keys that contain its dimensions, and
sets their counters to zero; --exact leaves the other keys alone. When a key without a uid is contained
in others, it says in how many, and asks first. The exit status is 1 if nothing was counted.

  tallygate reset uid=42 --reason "called support"
` + afterUsage

	exemptUsage = `
tallygate exempt exempts a key from rules for a time, and ends the verdicts in force: the key is
counted, and not judged. A key with a uid also covers keys that contain this uid and more
dimensions. --for 0 ends an exemption. --list shows which there are, by commands and by the rule file.

  tallygate exempt uid=42 --for 7d --reason "load test"
  tallygate exempt --list
` + afterUsage

	eraseUsage = `
tallygate erase ends the verdicts in force for a key, and erases its counters and its verdicts. A key
with a uid also covers keys that contain this uid and more dimensions. Any other key, such as
ip=203.0.113.9, covers itself only: name each. Events and the audit stay until Kafka deletes them by
age.

  tallygate erase uid=42 --reason "deletion request 77"
` + afterUsage

	afterUsage = `
Ask any aggregator: the one that owns the key carries the command out. When the exit status is 0, it
is durable, published, and in the audit with who, when and why.`
)

// run is `tallygate block`, unblock, reset, exempt and erase.
func (v override) run(ctx context.Context, c *call) error {
	o := c.options(v.usage)
	k := keyCommand{override: v, stdin: c.stdin, stdout: c.stdout, stderr: c.stderr}
	at := apiclient.NewOptions(o)
	o.StringVar(&k.body.Reason, "reason", "", "why, for the audit; `text`, required")
	o.StringVar(&k.body.By, "by", operator(), "who gives the command, for the audit; where you show a token or a certificate, for whom; a `name`")
	o.BoolVar(&k.json, "json", false, "write the aggregator's answer as it is")
	if v.lasts {
		o.StringVar(&k.body.For, "for", "", "`time` that it lasts, such as 30m, 2h or 7d; required")
	}
	if v.rule {
		o.StringVar(&k.body.Rule, "rule", "", "only this `rule`, or rule/limit")
	}
	if v.many {
		o.BoolVar(&k.all, "all", false, "every key that is blocked; without a key")
	}
	if v.reaches {
		o.BoolVar(&k.body.Exact, "exact", false, "only this key, and none that contains it")
		o.BoolVar(&k.yes, "yes", false, "don't ask")
	}
	var list exemptionList
	if v.list {
		o.BoolVar(&list.wanted, "list", false, "give no command: list the exemptions, all or those that name these dimensions")
		o.IntVar(&list.limit, "limit", exemptionsLimit, "with --list: `number` of exemptions to show at most")
	}
	if err := o.Parse(c.args); err != nil {
		return err
	}
	var err error
	if k.api, err = at.Open(); err != nil {
		return err
	}
	defer k.api.Close()
	if list.wanted {
		return list.run(ctx, &k, o.Args())
	}
	k.body.Command = cmp.Or(v.sent, strings.TrimPrefix(c.name, "tallygate "))
	return k.send(ctx, o.Args())
}

// operator names who runs the command, as far as the machine knows.
func operator() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// parseFor parses --for.
func parseFor(text string) (time.Duration, error) {
	d, err := rules.ParseDuration(text)
	return d.Duration(), err
}

// keyCommand is one run of an override.
type keyCommand struct {
	override
	stdin          io.Reader
	stdout, stderr io.Writer

	api      *api.Client
	body     api.Command
	json     bool
	all, yes bool
}

// send checks what was given before it asks anybody: a mistake in an option must not cost a question to an aggregator,
// nor stand behind its refusal.
func (k *keyCommand) send(ctx context.Context, args []string) error {
	if k.body.Reason == "" {
		return &ops.UsageError{Err: errors.New("say why: --reason TEXT is kept in the audit")}
	}
	if k.lasts && k.body.For == "" {
		return &ops.UsageError{Err: errors.New("say for how long: --for TIME, such as 30m, 2h or 7d")}
	}
	if _, err := parseFor(k.body.For); k.lasts && err != nil {
		return &ops.UsageError{Err: fmt.Errorf("--for: %w", err)}
	}
	if len(args) == 0 && k.many && (k.all || k.body.Rule != "") {
		return k.unblockMany(ctx)
	}
	if k.all {
		return &ops.UsageError{Err: errors.New("--all is every key: name none")}
	}
	key, err := parseKey(args)
	if err != nil {
		return &ops.UsageError{Err: err}
	}
	k.body.Key = map[string]string{}
	for _, d := range key {
		k.body.Key[d.Name] = d.Value
	}
	if k.reaches && !k.body.Exact && !k.yes {
		if err := k.sure(ctx, key); err != nil {
			return err
		}
	}
	answer, err := k.api.Post(ctx, "/v1/commands", k.body)
	if err != nil {
		return err
	}
	result, err := api.Decode[api.Commanded](answer, nil)
	if err != nil {
		return err
	}
	if !k.json {
		err := k.write(result)
		k.stillDenied(ctx, key)
		return err
	}
	_, err = k.stdout.Write(answer)
	if err == nil && !k.did(result) {
		return exitStatus(ops.ExitError)
	}
	return err
}
