package replay

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/tools/accesslog"
)

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	src, err := Files([]string{"-"}, strings.NewReader(""), accesslog.Lines{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := src.Next(ctx); !errors.Is(err, io.EOF) {
		t.Errorf("reading after the end of the context: %v, want the end", err)
	}
}
