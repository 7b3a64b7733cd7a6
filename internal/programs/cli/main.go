package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/base/terminal"
	"github.com/tallygate/tallygate/internal/console"
	"github.com/tallygate/tallygate/internal/notify"
	"github.com/tallygate/tallygate/internal/programs/completion"
	"github.com/tallygate/tallygate/internal/programs/dev"
	"github.com/tallygate/tallygate/internal/programs/emitcmd"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/tools/doctor"
	"github.com/tallygate/tallygate/internal/tools/replay"
	"github.com/tallygate/tallygate/internal/tools/ruletest"
	"github.com/tallygate/tallygate/internal/tools/suggest"
	"github.com/tallygate/tallygate/internal/tools/trace"
	"github.com/tallygate/tallygate/internal/tools/vocabulary"
	"github.com/tallygate/tallygate/rules/document"
)

// Command is a row of the table of commands. The help, the suggestion for an unknown command and
// the list in docs/reference/commands.md come from it.
type Command struct {
	Name    string
	Args    string // as the help shows them; "" if it takes options only
	Summary string // what it does, without a full stop

	old string // a former name that is still accepted; "" if there is none
	run func(ctx context.Context, c *call) error
}

// Commands returns the table, in the order of the help.
func Commands() []Command {
	return []Command{
		{Name: "dev", Summary: "run the whole engine in one process, with sample rules and traffic", run: program(dev.Command)},
		{Name: "check", Args: "FILE…", Summary: "validate rule files", run: check},
		{Name: "schema", Summary: "print the JSON Schema of rule files, for editors", run: schema},
		{Name: "test", Args: "FILE…", Summary: "run the tests of rules", run: program(ruletest.Command)},
		{Name: "replay", Args: "FILE…|-|kafka:TOPIC", Summary: "show what new rules would have blocked", run: program(replay.Command(liveGroups))},
		{Name: "suggest", Args: "FILE…|-|kafka:TOPIC", Summary: "find numbers for limits in past events", run: program(suggest.Command)},
		{Name: "trace", Args: "EVENT|FILE…|-|kafka:TOPIC", Summary: "show what each rule does with an event, and why it does not count it", run: program(trace.Command(liveGroups))},
		{Name: "vocabulary", Args: "FILE…|-|kafka:TOPIC", Summary: "write what past events say, or what contradicts the rules", run: program(vocabulary.Command)},
		{Name: "explain", Args: "KEY…", Summary: "show what a key has counted, and why it is blocked", run: explain},
		{Name: "blocks", Args: "[KEY…]", Summary: "list the verdicts in force", run: listBlocks},
		{Name: "audit", Args: "[KEY…]", Summary: "list past verdicts and commands: who, when and why", run: listAudit},
		{Name: "dead-letters", Summary: "list malformed events, or send corrected ones again", run: deadLetters},
		{Name: "hot-keys", Summary: "list the keys that take much of their partition", run: hotKeys},
		{Name: "block", Args: "KEY…", Summary: "block a key for a time", run: override{usage: blockUsage, lasts: true}.run},
		{Name: "unblock", Args: "[KEY…]", Summary: "end the blocks of a key, of a rule, or all of them", run: override{usage: unblockUsage, rule: true, many: true, reaches: true}.run},
		{Name: "reset", Args: "KEY…", Summary: "end a key's blocks and count it from zero", run: override{usage: resetUsage, rule: true, reaches: true}.run},
		{Name: "exempt", Args: "KEY…", Summary: "exempt a key from rules for a time, or list what is exempt", run: override{usage: exemptUsage, lasts: true, rule: true, list: true}.run},
		{Name: "limit", Args: "KEY…", Summary: "give a key a limit of its own, end it, or list limits and grants", run: allow{limitUsage, api.KindLimit}.run},
		{Name: "grant", Args: "KEY… +AMOUNT", Summary: "add to a key's limit, end that, or list limits and grants", run: allow{grantUsage, api.KindGrant}.run},
		{Name: "erase", Args: "KEY…", Summary: "erase all that was counted for a key, and its verdicts", old: "forget", run: override{usage: eraseUsage, sent: "forget"}.run},
		{Name: "emit", Args: "FILE|-", Summary: "send an access log, or a file of events, to Kafka", run: program(emitcmd.Command)},
		{Name: "doctor", Summary: "check Kafka, Redis and the group, and say how to fix what is wrong", run: program(doctor.Command)},
		{Name: "console", Summary: "serve web pages that show whether everything works, and who is blocked", run: program(console.Command)},
		{Name: "notify", Summary: "tell people what happens, by webhook, Slack, Teams, Alertmanager or e-mail", run: program(notify.Command)},
		{Name: "completion", Args: strings.Join(completion.Shells(), "|"), Summary: "print what completes command lines in a shell", run: complete},
		{Name: "version", Summary: "print the version", run: version},
	}
}

func version(_ context.Context, c *call) error {
	ops.WriteVersion([]string{"--version"}, "tallygate", c.stdout)
	return nil
}

// Main runs a command and returns the exit status. What commands write passes a terminal.Writer, as any of them
// shows keys, names and errors that others have made.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	out, errs := terminal.New(stdout), terminal.New(stderr)
	status := run(ctx, args, stdin, out, errs, getenv)
	if err := errors.Join(out.Close(), errs.Close()); err != nil && status == ops.ExitOK {
		return ops.ExitError
	}
	return status
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	if len(args) == 0 {
		writeHelp(stderr)
		return ops.ExitUsage
	}
	name := args[0]
	switch name {
	case "help", "--help", "-help", "-h":
		writeHelp(stdout)
		return ops.ExitOK
	case "--version", "-version":
		name = "version"
	}
	var names []string
	for _, cmd := range Commands() {
		if cmd.old == name {
			fmt.Fprintf(stderr, "tallygate: %s is called %s now\n", name, cmd.Name)
			name = cmd.Name
		}
		if cmd.Name == name {
			c := &call{name: "tallygate " + name, args: args[1:], stdin: stdin, stdout: stdout, stderr: stderr, getenv: getenv}
			err := cmd.run(ctx, c)
			if status, ok := errors.AsType[exitStatus](err); ok {
				return int(status)
			}
			return ops.Exit(stderr, c.name, err)
		}
		names = append(names, cmd.Name)
	}
	fmt.Fprintf(stderr, "tallygate: unknown command %q%s\n\n", name, document.DidYouMean(name, names))
	writeHelp(stderr)
	return ops.ExitUsage
}

func writeHelp(out io.Writer) {
	fmt.Fprint(out, "Tallygate enforces business limits: it counts events by rules, and blocks keys that exceed a limit.\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, c := range Commands() {
		fmt.Fprintf(w, "  tallygate %s\t%s\n", strings.TrimSpace(c.Name+" "+c.Args), c.Summary)
	}
	_ = w.Flush() // a closed pipe ends the process anyway
	fmt.Fprint(out, "\nEach command explains itself with --help. A production installation runs the programs aggregator and enforcer.\n")
}
