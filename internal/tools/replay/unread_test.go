package replay

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// oneRecord is a topic's log.
type oneRecord struct{ left []string }

func (l *oneRecord) Next(context.Context) (int32, *kafkalog.Record, error) {
	if len(l.left) == 0 {
		return 0, nil, io.EOF
	}
	value := l.left[0]
	l.left = l.left[1:]
	return 0, &kafkalog.Record{Value: []byte(value)}, nil
}
func (l *oneRecord) Total() int64 { return 2 }
func (l *oneRecord) Done() int64  { return 0 }
func (l *oneRecord) Close()       {}

// What is in a topic's events and nothing reads is told, each name once.
func TestATopicTellsFieldsThatAreNotRead(t *testing.T) {
	const line = `{"uid":"42","api":"search","plan":"pro"}`
	src := &topic{name: "events", log: &oneRecord{[]string{line, line}}, repeats: map[int32]*shard.Repeats{}}
	var told []string
	TellUnread(src, func(text string) { told = append(told, text) })
	n := 0
	for ; ; n++ {
		if _, err := src.Next(t.Context()); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n != 2 || len(told) != 1 || !strings.Contains(told[0], `"plan" is no field of an event`) {
		t.Errorf("%d events, and told: %q", n, told)
	}
}
