package emitcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/internal/accesslog"
)

// input is what is read: the file or standard input, unpacked, until ctx ends.
type input struct {
	io.Reader
	name  string
	size  int64        // of the file, packed; 0 when unknown
	read  atomic.Int64 // bytes of it, packed
	close func() error
}

func (in *input) Close() error { return in.close() }

func open(ctx context.Context, o *options, stdin io.Reader) (*input, error) {
	in := &input{name: o.file, close: func() error { return nil }}
	var raw io.Reader
	switch {
	case o.file == "-":
		in.name = "standard input"
		raw = newPump(ctx, stdin)
	case o.follow:
		f, err := newFollower(ctx, o.file, 250*time.Millisecond)
		if err != nil {
			return nil, fmt.Errorf("open the input: %w", err)
		}
		in.Reader, in.close = f, f.Close
		return in, nil
	default:
		f, err := os.Open(o.file)
		if err != nil {
			return nil, fmt.Errorf("open the input: %w", err)
		}
		in.close = f.Close
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			in.size = info.Size()
		}
		raw = untilDone{ctx, f}
	}
	unpacked, err := accesslog.Unpack(counter{raw, &in.read})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", in.name, err), in.Close())
	}
	in.Reader = unpacked
	return in, nil
}

type counter struct {
	io.Reader
	n *atomic.Int64
}

func (c counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// untilDone ends when ctx does. A read that is under way goes on: it is for regular files.
type untilDone struct {
	ctx context.Context
	io.Reader
}

func (r untilDone) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, io.EOF
	}
	return r.Reader.Read(p)
}

// pump reads ahead in a goroutine of its own, so that a read from a terminal or a pipe that
// stays silent does not keep the command from ending. The goroutine may outlive the pump until
// its read returns: there is no other way to leave a blocked read alone.
type pump struct {
	ctx  context.Context
	next chan chunk
	rest chunk
}

type chunk struct {
	data []byte
	err  error
}

func newPump(ctx context.Context, r io.Reader) *pump {
	p := &pump{ctx: ctx, next: make(chan chunk)}
	go func() {
		for {
			buf := make([]byte, 64<<10)
			n, err := r.Read(buf)
			select {
			case p.next <- chunk{buf[:n], err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return p
}

// Read implements io.Reader. It ends with io.EOF when ctx does.
func (p *pump) Read(dst []byte) (int, error) {
	for len(p.rest.data) == 0 {
		if p.rest.err != nil {
			return 0, p.rest.err
		}
		select {
		case p.rest = <-p.next:
		case <-p.ctx.Done():
			return 0, io.EOF
		}
	}
	n := copy(dst, p.rest.data)
	p.rest.data = p.rest.data[n:]
	return n, nil
}
