package cli

import (
	"context"
	"errors"

	descriptions "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/rules"
)

const schemaUsage = `
tallygate schema prints the JSON Schema of rule files. Editors use it to complete and check rules
while you type.

  tallygate schema > ruleset.v1.schema.json

Then begin a rule file with:

  # yaml-language-server: $schema=./ruleset.v1.schema.json

It also prints the schemas of what the topics hold, for programs that write or read it:

  tallygate schema --event > event.schema.json
  tallygate schema --verdict > verdict.schema.json`

// schema is `tallygate schema`.
func schema(_ context.Context, c *call) error {
	o := c.options(schemaUsage)
	event := o.Bool("event", false, "print the schema of events instead")
	verdict := o.Bool("verdict", false, "print the schema of verdicts instead")
	if err := o.ParseOnly(c.args); err != nil {
		return err
	}
	text := rules.Schema()
	var err error
	switch {
	case *event && *verdict:
		return &ops.UsageError{Err: errors.New("--event or --verdict: one schema at a time")}
	case *event:
		text, err = descriptions.Files.ReadFile(descriptions.Event)
	case *verdict:
		text, err = descriptions.Files.ReadFile(descriptions.Verdict)
	}
	if err != nil {
		return err
	}
	_, err = c.stdout.Write(text)
	return err
}
