package input

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/tallygate/tallygate/internal/base/terminal"
)

// Progress draws a bar with its rate and the time that is left, if what it writes to is a
// terminal, and lines of text above it.
type Progress struct {
	mu      sync.Mutex
	out     io.Writer
	bar     *progressbar.ProgressBar // nil: none
	stop    chan struct{}
	drawing sync.WaitGroup
}

// NewProgress draws how much of total is done, until Finish. A total of 0 draws nothing.
func NewProgress(out io.Writer, name string, total int64, bytes bool, done func() int64) *Progress {
	p := &Progress{out: out, stop: make(chan struct{})}
	under := out
	if t, ok := out.(*terminal.Writer); ok {
		under = t.Under()
	}
	if f, ok := under.(*os.File); !ok || total == 0 || !term.IsTerminal(int(f.Fd())) {
		return p
	}
	p.bar = progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(under), progressbar.OptionSetDescription(name),
		progressbar.OptionShowBytes(bytes), progressbar.OptionShowIts(), progressbar.OptionSetPredictTime(true),
		progressbar.OptionFullWidth(), progressbar.OptionClearOnFinish())
	p.drawing.Go(func() { p.draw(done) })
	return p
}

// NewProgressLines is NewProgress, and writes a line now and then where there is no terminal.
func NewProgressLines(out io.Writer, name string, total int64, every time.Duration, done func() int64) *Progress {
	p := NewProgress(out, name, total, false, done)
	if p.bar != nil || total == 0 {
		return p
	}
	p.drawing.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-tick.C:
				p.Line("%s: %d of %d", name, done(), total)
			}
		}
	})
	return p
}

func (p *Progress) draw(done func() int64) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			p.mu.Lock()
			_ = p.bar.Set64(done())
			p.mu.Unlock()
		}
	}
}

// Line writes a line of text.
func (p *Progress) Line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	fmt.Fprintf(p.out, format+"\n", args...)
}

// Finish takes the bar away. It is called once.
func (p *Progress) Finish() {
	close(p.stop)
	p.drawing.Wait()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
