package cli

import (
	_ "embed"
	"io"

	"github.com/tallygate/tallygate/internal/ops"
)

// RuleSchema is the JSON Schema of rule files.
//
//go:embed ruleset.v1.schema.json
var RuleSchema string

const schemaUsage = `
tallygate schema prints the JSON Schema of rule files, with which editors complete and check
while you type.

  tallygate schema > ruleset.v1.schema.json

Then begin a rule file with:

  # yaml-language-server: $schema=./ruleset.v1.schema.json`

// Schema is `tallygate schema`.
func Schema(args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	o := ops.NewOptions("tallygate schema", schemaUsage, stdout, getenv)
	err := o.ParseOnly(args)
	if err == nil {
		_, err = io.WriteString(stdout, RuleSchema)
	}
	return ops.Exit(stderr, "tallygate schema", err)
}
