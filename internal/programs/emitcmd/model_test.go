package emitcmd

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// logged is a log that is written and rotated, and a follower of it that is killed at any moment. Each
// line has to be read, always at the same position, which no other line has.
type logged struct {
	t      *testing.T
	path   string
	dated  bool     // rotated files are called after dates, not numbered
	writer *os.File // into the file that it opened last
	old    bool     // that file has lost its name
	open   string   // what is missing of the last line
	lines  []string
	days   int

	f          *follower
	unread     []byte // read and not taken as lines yet
	taken      int64  // the position behind the last line
	at         place  // what was stored last
	stored     int64
	when       time.Time
	byPosition map[int64]string
	byLine     map[string]int64
}

func newLogged(t *testing.T, dated bool) *logged {
	l := &logged{t: t, path: filepath.Join(t.TempDir(), "access.log"), dated: dated, byPosition: map[int64]string{}, byLine: map[string]int64{}}
	l.reopen()
	l.write(1, 10)
	var err error
	if l.f, err = newFollower(t.Context(), l.path, false); err != nil {
		t.Fatal(err)
	}
	l.follow()
	t.Cleanup(func() { _ = l.f.Close(); _ = l.writer.Close() })
	return l
}

func (l *logged) check(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *logged) follow() {
	l.f.moved, l.f.say = l.store, l.t.Logf
	l.unread, l.taken = nil, l.f.position
	l.check(l.store())
}

// store keeps the place in the model, in place of a state file.
func (l *logged) store() error {
	if at, ok := l.f.place(l.taken); ok {
		l.at, l.stored, l.when = at, l.taken, time.Now()
	}
	return nil
}

// read makes the follower take some steps; it returns how many bytes it has read.
func (l *logged) read(steps int) (n int) {
	l.t.Helper()
	buf := make([]byte, 300)
	for range steps {
		got, _, err := l.f.step(buf)
		l.check(err)
		n += got
		l.unread = append(l.unread, buf[:got]...)
		for {
			i := bytes.IndexByte(l.unread, '\n')
			if i < 0 {
				break
			}
			line := string(l.unread[:i])
			l.unread = l.unread[i+1:]
			l.taken += int64(i) + 1
			l.took(line)
		}
	}
	return n
}

func (l *logged) took(line string) {
	l.t.Helper()
	if was, ok := l.byPosition[l.taken]; ok && was != line {
		l.t.Fatalf("at %d stood %q, and now %q", l.taken, was, line)
	}
	if was, ok := l.byLine[line]; ok && was != l.taken {
		l.t.Fatalf("%q was at %d, and is now at %d", line, was, l.taken)
	}
	l.byPosition[l.taken], l.byLine[line] = line, l.taken
}

// kill starts the follower again at what was stored.
func (l *logged) kill() {
	l.t.Helper()
	_ = l.f.Close()
	var err error
	l.f, err = resumeFollower(l.t.Context(), l.path, l.at, l.stored, l.when, func(format string, args ...any) {
		l.t.Errorf(format, args...)
	})
	l.check(err)
	l.follow()
}

func (l *logged) write(lines, length int) {
	l.end()
	for range lines {
		line := fmt.Sprintf("%08x %d %s", uint32(len(l.lines)+1)*2654435761, len(l.lines), strings.Repeat("x", length))
		l.lines = append(l.lines, line)
		l.put(line + "\n")
	}
}

// begin writes a part of a line.
func (l *logged) begin(length int) {
	l.end()
	line := fmt.Sprintf("%08x %d %s", uint32(len(l.lines)+1)*2654435761, len(l.lines), strings.Repeat("y", length))
	l.lines = append(l.lines, line)
	l.put(line[:len(line)/2])
	l.open = line[len(line)/2:] + "\n"
}

func (l *logged) end() {
	l.put(l.open)
	l.open = ""
}

func (l *logged) put(text string) {
	_, err := l.writer.WriteString(text)
	l.check(err)
}

// reopen goes on in the file that has the name.
func (l *logged) reopen() {
	l.end0()
	w, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	l.check(err)
	if l.writer != nil {
		l.check(l.writer.Close())
	}
	l.writer, l.old = w, false
}

func (l *logged) end0() {
	if l.writer != nil {
		l.end()
	}
}

// free makes the newest rotated name free, and returns it.
func (l *logged) free() string {
	if l.dated {
		l.days++
		return fmt.Sprintf("%s-2026%04d", l.path, l.days)
	}
	for n := 30; n > 0; n-- {
		for _, packed := range []string{"", ".gz"} {
			if err := os.Rename(fmt.Sprint(l.path, ".", n, packed), fmt.Sprint(l.path, ".", n+1, packed)); err != nil && !os.IsNotExist(err) {
				l.t.Fatal(err)
			}
		}
	}
	return l.path + ".1"
}

// rotate renames the file and makes another one. The writer has the old one open still.
func (l *logged) rotate() {
	if l.old {
		l.reopen()
	}
	l.end()
	l.check(os.Rename(l.path, l.free()))
	l.check(os.WriteFile(l.path, nil, 0o600))
	l.old = true
}

// copyTruncate copies the file, and empties it.
func (l *logged) copyTruncate() {
	if l.old {
		l.reopen()
	}
	l.end()
	text, err := os.ReadFile(l.path)
	l.check(err)
	if len(text) == 0 {
		return // logrotate skips it, too
	}
	l.check(os.WriteFile(l.free(), text, 0o600))
	l.check(os.Truncate(l.path, 0))
}

// pack packs the newest rotated file that nobody writes into.
func (l *logged) pack() {
	if l.old {
		return
	}
	all, err := rotatedOf(l.path)
	l.check(err)
	for _, r := range all {
		if strings.HasSuffix(r.path, ".gz") {
			continue
		}
		text, err := os.ReadFile(r.path)
		l.check(err)
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, err = io.Copy(z, bytes.NewReader(text))
		l.check(err)
		l.check(z.Close())
		l.check(os.WriteFile(r.path+".gz", packed.Bytes(), 0o600))
		l.check(os.Remove(r.path))
		return
	}
}

// do does what a byte says.
func (l *logged) do(b byte) {
	n := int(b >> 4)
	switch b & 15 {
	case 0, 1:
		l.write(1+n, n)
	case 2:
		l.write(1, 200*n)
	case 3:
		l.begin(10 * n)
	case 4:
		l.rotate()
	case 5:
		l.reopen()
	case 6:
		l.copyTruncate()
	case 7:
		l.pack()
	case 8, 9, 10:
		l.read(1 + n)
	case 11:
		l.read(grace * (n + 1))
	case 12, 13:
		l.check(l.store())
	case 14:
		l.kill()
	default:
		l.read(1)
		l.kill()
	}
}

// finish reads all there is, and checks it.
func (l *logged) finish() {
	l.t.Helper()
	l.reopen()
	l.write(1, 5)
	for silent := 0; silent < 3*grace; silent++ {
		if l.read(1) > 0 {
			silent = 0
		}
	}
	for _, line := range l.lines {
		if _, ok := l.byLine[line]; !ok {
			l.t.Errorf("%.20q was never read", line)
		}
	}
	if len(l.byLine) != len(l.lines) {
		l.t.Errorf("%d lines were read, and %d written", len(l.byLine), len(l.lines))
	}
}

func followed(t *testing.T, dated bool, ops []byte) {
	l := newLogged(t, dated)
	for _, b := range ops {
		l.do(b)
	}
	l.finish()
}

// Whatever is done to a log, and whenever the follower is killed, each line has one position.
func TestFollowingAnyLog(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(testrun.Seed(t), 1))
	for i := range 80 {
		ops := make([]byte, 5+r.IntN(60))
		for k := range ops {
			ops[k] = byte(r.Uint32())
		}
		if ok := t.Run(fmt.Sprint(i), func(t *testing.T) { followed(t, i%2 == 0, ops) }); !ok {
			t.Fatalf("operations %x, dated %v", ops, i%2 == 0)
		}
	}
}

func FuzzFollow(f *testing.F) {
	f.Add(false, []byte{0, 8, 4, 0x31, 5, 0, 14, 6, 0, 15, 11})
	f.Add(true, []byte{2, 9, 6, 0x22, 12, 6, 7, 0x10, 14, 11, 4, 0, 5, 7, 14})
	f.Fuzz(func(t *testing.T, dated bool, ops []byte) { followed(t, dated, ops[:min(len(ops), 200)]) })
}
