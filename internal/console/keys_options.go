package console

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/ops"
)

// keysOptions are the options of the pages about keys.
type keysOptions struct {
	o             *ops.Options
	plain, ticket string
}

func newKeysOptions(o *ops.Options) *keysOptions {
	k := &keysOptions{o: o}
	o.StringVar(&k.plain, "plain-dimensions", "", "`dimensions` whose values are never masked, beside api and all: such as attrs.campaign,attrs.shop")
	o.StringVar(&k.ticket, "ticket-pattern", "", "regular `expression` that a ticket in a form has to match whole, such as [A-Z]+-[0-9]+; without it any text is one")
	return k
}

// fill sets what the options say.
func (k *keysOptions) fill(c *KeysConfig) error {
	for name := range strings.SplitSeq(k.plain, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if !event.IsDim(name) {
			return fmt.Errorf("--plain-dimensions: %q is not a dimension; dimensions are %s", name, event.Dimensions)
		}
		c.Plain = append(c.Plain, name)
	}
	if _, err := regexp.Compile("^(?:" + k.ticket + ")$"); err != nil {
		return fmt.Errorf("--ticket-pattern: %w", err)
	}
	c.Ticket = k.ticket
	var err error
	c.Secrets, err = k.secrets()
	return err
}

// secrets are the lines of the file that seals sessions: all consoles of one address have the same. A new line
// makes new references from the next start on.
func (k *keysOptions) secrets() (secrets [][]byte, err error) {
	f := k.o.Lookup("session-key-file")
	if f == nil || f.Value.String() == "" {
		return nil, nil
	}
	text, err := os.ReadFile(f.Value.String())
	if err != nil {
		return nil, fmt.Errorf("read --session-key-file: %w", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if line := bytes.TrimSpace(lines.Bytes()); len(line) > 0 {
			secrets = append(secrets, bytes.Clone(line))
		}
	}
	if len(secrets) == 0 {
		return nil, errors.New("read --session-key-file: it has no key")
	}
	return secrets, nil
}
