package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/base/keytext"
	"github.com/tallygate/tallygate/internal/run/apiclient"
)

const hotKeysUsage = `
tallygate hot-keys lists the keys that take much of their partition, and the load of each
partition, over about the last half minute. Ask any aggregator: it asks the others.

  tallygate hot-keys
  tallygate hot-keys --limit 100 --json
`

// hotAnswer is the answer to GET /v1/hot-keys, as it is shown.
type hotAnswer api.HotKeys

// hotKeys is `tallygate hot-keys`.
func hotKeys(ctx context.Context, c *call) error {
	o := c.options(hotKeysUsage)
	at := apiclient.NewOptions(o)
	limit := o.Int("limit", 20, "`number` of keys to show at most")
	asJSON := o.Bool("json", false, "write the aggregator's answer as it is")
	if err := o.ParseOnly(c.args); err != nil {
		return err
	}
	aggregator, err := at.Open()
	if err != nil {
		return err
	}
	defer aggregator.Close()
	body, err := aggregator.Get(ctx, fmt.Sprintf("/v1/hot-keys?limit=%d", *limit))
	if err != nil {
		return err
	}
	if *asJSON {
		_, err = c.stdout.Write(body)
		return err
	}
	a, err := api.Decode[hotAnswer](body, nil)
	if err != nil {
		return err
	}
	return a.write(c.stdout)
}

// write lists the keys first, and below them all partitions: without a hot key one sees whether there is load at all.
func (a *hotAnswer) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	a.Keys = slices.DeleteFunc(a.Keys, func(k api.HotKey) bool { return k.EventsPerSecond < shownRate }) // an older aggregator tells of idle ones
	idle := !slices.ContainsFunc(a.Partitions, func(p api.PartitionLoad) bool { return p.EventsPerSecond >= shownRate })
	switch {
	case len(a.Keys) == 0 && idle && len(a.Partitions) > 0:
		fmt.Fprintln(w, "no key has had events in the last half minute")
	case len(a.Keys) == 0:
		fmt.Fprintln(w, "no key takes much of its partition")
	default:
		fmt.Fprintln(w, "KEY\tPARTITION\tOF ITS EVENTS\tEVENTS/S")
		for _, k := range a.Keys {
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", keytext.FormatMap(k.Key), k.Partition, share(k.Share), rate(k.EventsPerSecond))
		}
	}
	fmt.Fprintln(w, "\nPARTITION\tOF ALL EVENTS\tEVENTS/S\tOWNER")
	for _, p := range a.Partitions {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", p.Partition, share(p.Share), rate(p.EventsPerSecond), cell(p.Owner, 128))
	}
	for _, m := range a.Missing {
		fmt.Fprintf(w, "%d\t-\t-\t%s\n", m.Partition, cell(m.Reason, 300))
	}
	return w.Flush()
}
