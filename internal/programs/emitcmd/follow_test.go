package emitcmd

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// following reads a followed file in the background.
type following struct {
	got  testrun.Output
	end  context.CancelFunc
	done sync.WaitGroup
	err  error
}

func follow(t *testing.T, path string) *following {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	f, err := newFollower(ctx, path, false)
	if err != nil {
		t.Fatal(err)
	}
	nothing := func() error { return nil }
	f.every, f.idle, f.moved, f.say = time.Millisecond, nothing, nothing, t.Logf
	r := &following{end: end}
	r.done.Go(func() {
		if _, err := io.Copy(&r.got, f); !errors.Is(err, errStopped) {
			r.err = err
		}
		_ = f.Close()
	})
	t.Cleanup(func() {
		end()
		r.done.Wait()
		if r.err != nil {
			t.Error(r.err)
		}
	})
	return r
}

func (r *following) want(t *testing.T, text string) {
	t.Helper()
	testrun.Eventually(t, "the follower reads "+text, func() bool { return r.got.String() == text })
}

func TestFollowingAFileThatGrows(t *testing.T) {
	path := write(t, "log", "a\n")
	r := follow(t, path)
	r.want(t, "a\n")
	appendTo(t, path, "b")
	r.want(t, "a\nb")
	appendTo(t, path, "c\n")
	r.want(t, "a\nbc\n")
}

func TestFollowingAFileThatIsRotated(t *testing.T) {
	path := write(t, "log", "a\nb")
	r := follow(t, path)
	r.want(t, "a\nb")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path+".1", "c") // by a writer that has not noticed yet
	r.want(t, "a\nbc")
	appendTo(t, path, "d\n")
	r.want(t, "a\nbc\nd\n")
}

func TestFollowingAFileThatIsTruncated(t *testing.T) {
	path := write(t, "log", "a\nlong line\n")
	r := follow(t, path)
	r.want(t, "a\nlong line\n")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path, "b\n")
	r.want(t, "a\nlong line\nb\n")
}
