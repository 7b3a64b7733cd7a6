package cli

import (
	"context"

	"github.com/tallygate/tallygate/rules"
)

const schemaUsage = `
tallygate schema prints the JSON Schema of rule files. Editors use it to complete and check rules
while you type.

  tallygate schema > ruleset.v1.schema.json

Then begin a rule file with:

  # yaml-language-server: $schema=./ruleset.v1.schema.json`

// schema is `tallygate schema`.
func schema(_ context.Context, c *call) error {
	if err := c.options(schemaUsage).ParseOnly(c.args); err != nil {
		return err
	}
	_, err := c.stdout.Write(rules.Schema())
	return err
}
