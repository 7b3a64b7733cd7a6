package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/keytext"
	"github.com/tallygate/tallygate/internal/run/ops"
)

// list refuses options of a command: who gives one expects that it takes effect.
func (k *allowing) list(ctx context.Context, args []string) error {
	if b := &k.body; b.Rule+b.Reason+b.For+b.Until+b.ID+string(b.Limit) != "" || b.End {
		return &ops.UsageError{Err: errors.New("--list gives no command: leave out the others")}
	}
	var key []event.Dim
	if len(args) > 0 {
		var err error
		if key, err = parseKey(args); err != nil {
			return &ops.UsageError{Err: err}
		}
	}
	text, err := k.api.Get(ctx, "/v1/grants?"+api.KeyQuery(key).Encode())
	if err != nil {
		return err
	}
	if k.json {
		_, err = k.stdout.Write(text)
		return err
	}
	a, err := api.Decode[api.Allowances](text, nil)
	if err != nil {
		return err
	}
	return k.writeList(a)
}

// writeList lists them on stdout, and partitions without an answer on stderr: an incomplete list is an error.
func (k *allowing) writeList(a *api.Allowances) error {
	if len(a.Grants) == 0 {
		fmt.Fprintln(k.stdout, "no key has a limit or a grant by a command")
	} else {
		w := tabwriter.NewWriter(k.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "KEY\tRULE\tHAS\tUNTIL\tBY\tWHY\tID")
		for i := range a.Grants {
			g := &a.Grants[i]
			until := strings.TrimPrefix(untilText(g.Until), " until ")
			why, id := orDash(cell(g.Reason, 400)), cell(g.ID, 128)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", keytext.FormatMap(g.Key), cell(g.Rule, 128), allowanceText(g), until, givenBy(g), why, id)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if a.More > 0 {
		fmt.Fprintf(k.stdout, "and %d more: name dimensions\n", a.More)
	}
	return incomplete(k.stderr, a.Missing)
}
