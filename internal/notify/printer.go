package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/tallygate/tallygate/internal/notify/config"
	"github.com/tallygate/tallygate/internal/notify/note"
)

// printer is a receiver that writes messages, for --dry-run.
type printer struct {
	receiver *config.Receiver
	out      io.Writer
}

// oneAtATime keeps lines whole: all receivers of a dry run write to one output.
var oneAtATime sync.Mutex

// Send writes the message as one line of JSON, behind the receiver's name.
func (p *printer) Send(_ context.Context, m *note.Message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	oneAtATime.Lock()
	defer oneAtATime.Unlock()
	_, err = fmt.Fprintf(p.out, "%s %s\n", p.receiver.Name, line)
	return err
}

// Close has nothing to end.
func (p *printer) Close() {}
