package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/freeport"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// bench is one run.
type bench struct {
	settings
	dir, prefix, metrics string

	mu      sync.Mutex
	probed  map[string]*probe
	waiting int           // probes that are emitted and not denied
	done    chan struct{} // closed when all are emitted and none waits
	all     bool          // all are emitted

	attacked time.Time // when the attack began
}

// probe is the way of one event.
type probe struct {
	emitted          time.Time
	received, denied time.Time // in the other process: by its feed, and by its table
	kind             kind
}

type kind string

const (
	warmUp   kind = "warm" // is not measured
	measured kind = "probe"
	attacker kind = "attacker"
)

func newBench(s settings, dir string) *bench {
	return &bench{settings: s, dir: dir, prefix: fmt.Sprintf("latency-%d", time.Now().UnixMilli()),
		metrics: freeAddr(), probed: map[string]*probe{}, done: make(chan struct{})}
}

func (b *bench) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	agg := exec.CommandContext(ctx, b.binary, append([]string{"--kafka", b.kafka, "--redis", b.redis, "--prefix", b.prefix,
		"--rules", filepath.Join(b.dir, "rules.yaml"), "--listen", freeAddr(), "--metrics-listen", b.metrics,
		"--partitions", strconv.Itoa(b.partitions), "--log-level", "error"}, b.args...)...)
	agg.Stderr = os.Stderr
	if err := agg.Start(); err != nil {
		return err
	}
	defer end(agg)
	read := make(chan error, 1)
	denier, err := b.startDenier(ctx, read)
	if err != nil {
		return err
	}
	defer end(denier)
	em, err := emit.New(emit.Config{Brokers: strings.Split(b.kafka, ","), Prefix: b.prefix, Linger: b.linger})
	if err != nil {
		return err
	}
	defer em.Close(ctx) //nolint:errcheck // what was measured is measured
	before, err := b.warmUp(ctx, em)
	if err != nil {
		return err
	}
	redis, err := b.redisStats(ctx)
	if err != nil {
		return err
	}
	var attack sync.WaitGroup
	if b.attack > 0 {
		attack.Go(func() { b.attackSoon(ctx, em) })
	} else {
		b.startProfile(ctx)
	}
	b.send(ctx, em, measured, b.probes)
	attack.Wait()
	b.mu.Lock()
	b.all = true
	b.finish()
	b.mu.Unlock()
	select {
	case <-b.done:
	case err := <-read:
		return fmt.Errorf("the denying process ended: %w", err)
	case <-ctx.Done():
		return errors.New("not every probe was denied within 5 minutes")
	}
	return b.report(ctx, before, redis)
}

func (b *bench) startDenier(ctx context.Context, read chan<- error) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, self, "deny", b.redis, b.prefix)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	go func() { read <- b.read(out, ready) }()
	select {
	case <-ready:
		return c, nil
	case <-ctx.Done():
		return nil, errors.Join(errors.New("the blocklist is never ready"), ctx.Err())
	}
}

// warmUp lets traffic and probes flow that are not measured: connections, the broker's
// compiler and the page cache are warm then. It returns the aggregator's metric so far.
func (b *bench) warmUp(ctx context.Context, em *emit.Emitter) (before measures, err error) {
	go b.traffic(ctx, em)
	b.send(ctx, em, warmUp, int(b.warmup/b.every))
	for ctx.Err() == nil {
		b.mu.Lock()
		left := b.waiting
		b.mu.Unlock()
		if left == 0 {
			return scrape(ctx, b.metrics)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return before, errors.New("the warm-up does not end")
}

// finish is called with the lock held.
func (b *bench) finish() {
	if b.all && b.waiting == 0 {
		select {
		case <-b.done:
		default:
			close(b.done)
		}
	}
}

func end(c *exec.Cmd) {
	_ = c.Process.Signal(os.Interrupt) // it may have ended
	_ = c.Wait()
}

// traffic emits other events, a few every millisecond.
func (b *bench) traffic(ctx context.Context, em *emit.Emitter) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	began, sent := time.Now(), 0
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for due := int(time.Since(began).Seconds() * float64(b.rate)); sent < due; sent++ {
			e := event.Event{UID: fmt.Sprintf("user-%d", rand.IntN(100_000)), API: "search.query"}
			if b.hot && sent%2 == 0 {
				e.Attrs = []event.Attr{{Name: "office", Value: event.StringValue("one")}}
			}
			em.Emit(e)
		}
	}
}

// send emits probes, whose intervals vary by half: at a fixed one all would meet the
// emitter's linger and the checkpoints at the same place.
func (b *bench) send(ctx context.Context, em *emit.Emitter, k kind, n int) {
	for i := range n {
		time.Sleep(b.every/2 + rand.N(b.every))
		if ctx.Err() != nil {
			return
		}
		uid := string(k) + "-" + strconv.Itoa(i)
		b.emitting(uid, k)
		em.Emit(event.Event{UID: uid, API: "probe", Attrs: []event.Attr{{Name: "probe", Value: event.StringValue(uid)}}})
	}
}

// emitting notes that an event is about to be emitted that is to be denied.
func (b *bench) emitting(uid string, k kind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probed[uid] = &probe{emitted: time.Now(), kind: k}
	b.waiting++
}

// read takes "uid received denied" lines, in nanoseconds, from the denying process.
func (b *bench) read(out io.Reader, ready chan<- struct{}) error {
	s := bufio.NewScanner(out)
	for s.Scan() {
		f := strings.Fields(s.Text())
		if f[0] == "ready" {
			close(ready)
			continue
		}
		if len(f) != 3 {
			return fmt.Errorf("a line that is none: %q", s.Text())
		}
		received, err := strconv.ParseInt(f[1], 10, 64)
		denied, err2 := strconv.ParseInt(f[2], 10, 64)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		b.mu.Lock()
		if p := b.probed[f[0]]; p != nil && p.denied.IsZero() {
			p.received, p.denied = time.Unix(0, received), time.Unix(0, denied)
			b.waiting--
			b.finish()
		}
		b.mu.Unlock()
	}
	return errors.Join(s.Err(), io.ErrUnexpectedEOF)
}

// freeAddr is where a program may listen.
func freeAddr() string {
	addr, err := freeport.Addr()
	if err != nil {
		return "127.0.0.1:0" // nobody finds it there, and the run ends with an error
	}
	return addr
}
