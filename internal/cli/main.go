package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/tallygate/tallygate/internal/dev"
	"github.com/tallygate/tallygate/internal/doctor"
	"github.com/tallygate/tallygate/internal/emitcmd"
	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/internal/replay"
	"github.com/tallygate/tallygate/internal/ruletest"
)

const mainUsage = `tallygate is the tool of Tallygate, the engine for asynchronous business limits.

  tallygate dev          run everything in one process, with sample rules and traffic
  tallygate check FILE…  is a rule file good?
  tallygate schema       the JSON Schema of rule files, for editors
  tallygate test FILE…   do rules do what their tests expect?
  tallygate replay FILE… who would new rules have blocked?
  tallygate explain KEY  what has a key counted, and why is it blocked?
  tallygate blocks       what is in force now?
  tallygate audit        what was: every verdict and command, who, when and why
  tallygate dead-letters what was no event; send again what has been mended
  tallygate hot-keys     which keys take much of their partition?
  tallygate block, unblock, reset, exempt, forget KEY
                         overrule the rules for a key
  tallygate emit FILE    send an access log, or events, to Kafka
  tallygate doctor       what is wrong with Kafka, Redis and all in between, and what to do?
  tallygate version

Each tells more with --help. The programs of a real installation are aggregator and enforcer.
`

// Main runs a command and returns the exit status.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, mainUsage)
		return ops.ExitUsage
	}
	switch name, rest := args[0], args[1:]; name {
	case "dev":
		return dev.Command(ctx, rest, stdin, stdout, stderr, getenv)
	case "check":
		return Check(rest, stdout, stderr, getenv)
	case "schema":
		return Schema(rest, stdout, stderr, getenv)
	case "test":
		return ruletest.Command(rest, stdout, stderr, getenv)
	case "replay":
		return replay.Command(ctx, rest, stdin, stdout, stderr, getenv)
	case "block", "unblock", "reset", "exempt", "forget":
		return KeyCommand(ctx, keyCommands[name], rest, stdin, stdout, stderr, getenv)
	case "explain":
		return Explain(ctx, rest, stdout, stderr, getenv)
	case "blocks":
		return Blocks(ctx, rest, stdout, stderr, getenv)
	case "audit":
		return Audit(ctx, rest, stdout, stderr, getenv)
	case "dead-letters":
		return DeadLetters(ctx, rest, stdin, stdout, stderr, getenv)
	case "hot-keys":
		return HotKeys(ctx, rest, stdout, stderr, getenv)
	case "emit":
		return emitcmd.Run(ctx, rest, stdin, stdout, stderr, getenv)
	case "doctor":
		return doctor.Command(ctx, rest, stdout, stderr, getenv)
	case "version", "--version", "-version":
		fmt.Fprintln(stdout, ops.Version())
		return ops.ExitOK
	case "help", "--help", "-help", "-h":
		fmt.Fprint(stdout, mainUsage)
		return ops.ExitOK
	default:
		fmt.Fprintf(stderr, "tallygate: there is no command %q\n\n%s", name, mainUsage)
		return ops.ExitUsage
	}
}
