package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/keytext"
	"github.com/tallygate/tallygate/internal/run/ops"
)

// exemptionsLimit is the aggregator's default number of exemptions.
const exemptionsLimit = 1000

// exemptionList is `tallygate exempt --list`.
type exemptionList struct {
	wanted bool
	limit  int
}

// exemptionsAnswer is the answer to GET /v1/exemptions, as it is shown.
type exemptionsAnswer api.Exemptions

// run refuses options of a command: who gives one expects that it takes effect.
func (l *exemptionList) run(ctx context.Context, k *keyCommand, args []string) error {
	if k.body.For != "" || k.body.Rule != "" || k.body.Reason != "" {
		return &ops.UsageError{Err: errors.New("--list gives no command: leave out --for, --rule and --reason")}
	}
	var key []event.Dim
	if len(args) > 0 {
		var err error
		if key, err = parseKey(args); err != nil {
			return &ops.UsageError{Err: err}
		}
	}
	q := api.KeyQuery(key)
	q.Set("limit", strconv.Itoa(l.limit))
	text, err := k.api.Get(ctx, "/v1/exemptions?"+q.Encode())
	if err != nil {
		return err
	}
	if k.json {
		_, err = k.stdout.Write(text)
		return err
	}
	a, err := api.Decode[exemptionsAnswer](text, nil)
	if err != nil {
		return err
	}
	return a.write(k)
}

// write lists them on stdout, and partitions without an answer on stderr: an incomplete list is an error, so that a
// script does not take it for all.
func (a *exemptionsAnswer) write(k *keyCommand) error {
	if len(a.Exemptions) == 0 {
		fmt.Fprintln(k.stdout, "nothing is exempt")
	} else {
		w := tabwriter.NewWriter(k.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "EXEMPT\tFROM\tUNTIL\tBY\tWHY")
		for i := range a.Exemptions {
			e := &a.Exemptions[i]
			until := "-"
			if e.Until != event.NoTime {
				until = clock(e.Until) + left(e.Until)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", exemptedText(e), rulesText(e), until, exemptedBy(e), orDash(cell(e.Reason, 400)))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if a.More > 0 {
		fmt.Fprintf(k.stdout, "and %d more: --limit, or name dimensions\n", a.More)
	}
	return incomplete(k.stderr, a.Missing)
}

// incomplete tells of partitions without an answer, and is an error if there are some.
func incomplete(stderr io.Writer, missing []api.MissingPartition) error {
	for _, m := range missing {
		fmt.Fprintf(stderr, "partition %d: %s\n", m.Partition, cell(m.Reason, 300))
	}
	if len(missing) > 0 {
		return fmt.Errorf("the list may be incomplete: %s did not answer", plural(len(missing), "partition"))
	}
	return nil
}

// exemptedText names an exemption's key.
func exemptedText(e *api.Exemption) string {
	text := keytext.FormatMap(e.Key)
	if e.In != "" {
		text = strings.TrimSpace(text + " ip in " + cell(e.In, 128))
	}
	return text
}

func rulesText(e *api.Exemption) string {
	if len(e.Rules) == 0 {
		return "all rules"
	}
	return cell(strings.Join(e.Rules, ", "), 400)
}
