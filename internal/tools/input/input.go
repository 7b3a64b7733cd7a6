// Package input opens what the commands read: a file, compressed or not, or standard input.
package input

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/tallygate/tallygate/internal/tools/accesslog"
)

// Input is a file or standard input, unpacked, until a context ends.
type Input struct {
	io.Reader
	Name string
	Size int64 // of the file as it is on disk; 0 when unknown

	read  atomic.Int64
	close func() error
}

// Done is how many bytes of Size have been read.
func (in *Input) Done() int64 { return in.read.Load() }

// Close closes the file.
func (in *Input) Close() error { return in.close() }

// Open opens a file, or standard input for "-". The input ends when ctx does.
func Open(ctx context.Context, name string, stdin io.Reader) (*Input, error) {
	in := &Input{Name: name, close: func() error { return nil }}
	var raw io.Reader
	if name == "-" {
		in.Name = "standard input"
		raw = newPump(ctx, stdin)
	} else {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("open the input: %w", err)
		}
		in.close = f.Close
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			in.Size = info.Size()
		}
		raw = untilDone{ctx, f}
	}
	unpacked, err := accesslog.Unpack(counter{raw, &in.read})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", in.Name, err), in.Close())
	}
	in.Reader = unpacked
	return in, nil
}

// Of is an input that is read as it is.
func Of(name string, r io.ReadCloser) *Input {
	return &Input{Reader: r, Name: name, close: r.Close}
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
