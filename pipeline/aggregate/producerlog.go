package aggregate

import (
	"context"
	"fmt"
	"strings"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/event"
)

// The parts of the table of producers are records of their own in the changelog, under two keys each, in turns.
// A checkpoint names the version of each part that belongs to it. It is as of the checkpoint's cut: a
// newer one would have a new owner drop events that no state has yet, and so the one before stays until
// the next checkpoint is durable.

const partPrefix = "\x00producers/"

func partKey(part int, version uint64) string {
	return fmt.Sprintf("%s%02d/%d", partPrefix, part, version%2)
}

func isPart(key []byte) bool { return strings.HasPrefix(string(key), partPrefix) }

// keepCopy keeps a part as it was at the cut, before it changes.
func (p *producerPart) keepCopy() {
	if p.due && p.copied == nil {
		p.copied = p.append(nil, event.NoTime)
	}
}

// writeProducers queues the parts that had changed at the cut, between events.
func (p *partition) writeProducers(ctx context.Context) error {
	for i := range p.producers.parts {
		if err := p.changelog.WaitBelow(ctx, sliceBytes); err != nil {
			return err
		}
		if err := p.writePart(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (p *partition) writePart(ctx context.Context, i int) error {
	p.hold()
	defer p.letGo()
	part := &p.producers.parts[i]
	if !part.due {
		return nil
	}
	value := part.copied
	if value == nil {
		value = part.append(nil, p.clock()-forgetProducers)
	}
	part.due, part.copied = false, nil
	return p.changelog.Append(ctx, fenced.Record{Key: []byte(partKey(i, part.version)), Value: value}, false, nil)
}
