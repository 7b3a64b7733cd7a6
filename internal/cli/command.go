package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/user"

	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

// command is one of those that change what holds for a key.
type command struct {
	name  string
	usage string
	lasts bool // it takes --for
	rule  bool // it takes --rule
}

const afterUsage = `
It is carried out by the aggregator that owns the key, whichever is asked, and done when the exit
status is 0: durable, published, and in the audit with who, when and why.`

var keyCommands = map[string]command{
	"block": {name: "block", lasts: true, usage: `
tallygate block blocks a key for a time, whatever it has counted, for all APIs. The verdict is called manual.

  tallygate block uid=42 --for 2h --reason "stolen card, ticket 123"
` + afterUsage},
	"unblock": {name: "unblock", rule: true, usage: `
tallygate unblock ends what is in force for a key. What it has counted stays: the next event may let
another verdict fall, unless you reset or exempt the key. With --rule or --all and no key it does so
for every key that a rule, or anything, has blocked: it says how many first, and asks.

  tallygate unblock uid=42 --reason "called support"
  tallygate unblock uid=42 --rule search-combined --reason "a bug in the app"
  tallygate unblock --rule search-combined --reason "a bad rule went out"
` + afterUsage},
	"reset": {name: "reset", rule: true, usage: `
tallygate reset ends what is in force for a key, and makes it count from zero.

  tallygate reset uid=42 --reason "called support"
` + afterUsage},
	"exempt": {name: "exempt", lasts: true, rule: true, usage: `
tallygate exempt lets a key be counted and not judged for a time, and ends what is in force; with a uid,
all keys that have these dimensions and maybe others, too. --for 0 ends an exemption.

  tallygate exempt uid=42 --for 7d --reason "load test"
` + afterUsage},
	"forget": {name: "forget", usage: `
tallygate forget ends what is in force for a key, and erases all that it has counted and its verdicts;
with a uid, those of all keys that have these dimensions and maybe others. A key without it, such as
ip=203.0.113.9, is one of its own: name each. Events and the audit stay until Kafka deletes them by age.

  tallygate forget uid=42 --reason "deletion request 77"
` + afterUsage},
}

// commandBody is the body of POST /v1/commands.
type commandBody struct {
	Command string            `json:"command"`
	Key     map[string]string `json:"key"`
	Rule    string            `json:"rule,omitempty"`
	For     string            `json:"for,omitempty"`
	Reason  string            `json:"reason"`
	By      string            `json:"by"`
}

// commandDone is its answer.
type commandDone struct {
	ID        string            `json:"id"`
	Partition int32             `json:"partition"`
	Keys      int               `json:"keys"`
	Verdicts  []verdict.Verdict `json:"verdicts"`
}

// KeyCommand is `tallygate block`, unblock, reset, exempt and forget.
func KeyCommand(ctx context.Context, c command, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	name := "tallygate " + c.name
	o := ops.NewOptions(name, c.usage, stdout, getenv)
	k := keyCommand{command: c, stdin: stdin, stdout: stdout, stderr: stderr}
	at := addAPI(o)
	o.StringVar(&k.body.Reason, "reason", "", "why, for the audit; `text`, required")
	o.StringVar(&k.body.By, "by", operator(), "who gives the command, for the audit; where you show a token or a certificate, for whom; a `name`")
	o.BoolVar(&k.json, "json", false, "write the aggregator's answer as it is")
	if c.lasts {
		o.StringVar(&k.body.For, "for", "", "`time` that it lasts, such as 30m, 2h or 7d; required")
	}
	if c.rule {
		o.StringVar(&k.body.Rule, "rule", "", "only this `rule`, or rule/limit")
	}
	if c.name == "unblock" {
		o.BoolVar(&k.all, "all", false, "every key that is blocked; without a key")
		o.BoolVar(&k.yes, "yes", false, "don't ask")
	}
	err := o.Parse(args)
	if err == nil {
		k.api, err = at.open()
	}
	if err == nil {
		defer k.api.client.CloseIdleConnections()
		err = k.run(ctx, o.Args())
	}
	return ops.Exit(stderr, name, err)
}

// operator is who runs the command, as far as the machine knows.
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

type keyCommand struct {
	command
	stdin          io.Reader
	stdout, stderr io.Writer

	api      *api
	body     commandBody
	json     bool
	all, yes bool
}

func (k *keyCommand) run(ctx context.Context, args []string) error {
	k.body.Command = k.name
	if k.body.Reason == "" {
		return &ops.UsageError{Err: errors.New("why? --reason TEXT is kept in the audit")}
	}
	if k.lasts && k.body.For == "" {
		return &ops.UsageError{Err: errors.New("for how long? --for TIME, such as 30m, 2h or 7d")}
	}
	if _, err := rules.ParseDuration(k.body.For); k.lasts && err != nil {
		return &ops.UsageError{Err: fmt.Errorf("--for: %w", err)}
	}
	if len(args) == 0 && k.name == "unblock" && (k.all || k.body.Rule != "") {
		return k.unblockMany(ctx)
	}
	if k.all {
		return &ops.UsageError{Err: errors.New("--all is every key: name none")}
	}
	q, err := keyQuery(args)
	if err != nil {
		return &ops.UsageError{Err: err}
	}
	k.body.Key = flat(q)
	answer, err := k.api.post(ctx, "/v1/commands", k.body)
	if err != nil {
		return err
	}
	if k.json {
		_, err = k.stdout.Write(answer)
		return err
	}
	var done commandDone
	if err := json.Unmarshal(answer, &done); err != nil {
		return fmt.Errorf("read the aggregator's answer: %w", err)
	}
	return k.tell(&done)
}

func flat(q url.Values) map[string]string {
	out := map[string]string{}
	for name, values := range q {
		out[name] = values[0]
	}
	return out
}

// toldVerdicts is how many verdicts are told one by one: a user may have thousands of keys.
const toldVerdicts = 20

// tell says what came of it.
func (k *keyCommand) tell(done *commandDone) error {
	if k.name == "forget" {
		if _, err := fmt.Fprintf(k.stdout, "%s erased (command %s)\n", plural(done.Keys, "key"), done.ID); err != nil {
			return err
		}
	} else if len(done.Verdicts) == 0 {
		_, err := fmt.Fprintf(k.stdout, "done; nothing was in force (command %s)\n", done.ID)
		return err
	}
	for i, v := range done.Verdicts {
		if i == toldVerdicts {
			_, err := fmt.Fprintf(k.stdout, "and %d more at least: tallygate audit tells them all\n", len(done.Verdicts)-i)
			return err
		}
		says := fmt.Sprintf("%s of %s ends now", v.Rule, event.FormatKey(v.Key))
		if v.State != verdict.Clear {
			says = fmt.Sprintf("%s: %s until %s", event.FormatKey(v.Key), v.Action, clock(v.Until))
		}
		if _, err := fmt.Fprintln(k.stdout, says); err != nil {
			return err
		}
	}
	return nil
}
