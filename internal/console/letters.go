package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/run/deadletter"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/kafkaconn/clients"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// deadLetters reads the dead-letter topic, now and then for all readers together.
type deadLetters struct {
	topic string
	kafka *kafkaconn.Kafka // nil: there is none

	mu  sync.Mutex
	got *letters
	err error
	at  time.Time
}

// letters are those of a day, by what is wrong and who sent them.
type letters struct {
	At     time.Time
	From   time.Time
	All    int
	Cut    bool // there are more than were read
	Groups []letterGroup
}

// letterGroup is dead letters of one reason and one producer.
type letterGroup struct {
	Reason, Producer string
	Count            int
	First, Last      time.Time
	Places           map[string]int // topic/partition, and how many of it
	About, Shape     string         // of the latest
	Record           string         // where that one is
}

// Where are the partitions that have most of them.
func (g *letterGroup) Where() (list []string) {
	for place := range g.Places {
		list = append(list, place)
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(cmp.Compare(g.Places[b], g.Places[a]), cmp.Compare(a, b)) })
	return list[:min(len(list), 3)]
}

const (
	lettersEvery  = 30 * time.Second // the topic is read again
	lettersWithin = 5 * time.Second
	lettersSpan   = 24 * time.Hour
	maxLetters    = 20_000 // that are read at once
)

// recent are the letters of the last day; while Kafka does not answer, the last ones with an error.
func (d *deadLetters) recent(ctx context.Context, now time.Time) (*letters, error) {
	if d.kafka == nil {
		return nil, errors.New("no Kafka is configured to read them from: start the console with --kafka")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.at) < lettersEvery && (d.got != nil || d.err != nil) {
		return d.got, d.err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lettersWithin, fmt.Errorf("kafka does not answer within %v", lettersWithin))
	defer cancel()
	got, err := d.read(ctx, now)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if errors.Is(err, context.Canceled) { // this reader has left
		return d.got, err
	}
	d.at, d.err = now, err
	if err != nil {
		return d.got, fmt.Errorf("read the dead letters: %w", err)
	}
	d.got = got
	return d.got, nil
}

func (d *deadLetters) read(ctx context.Context, now time.Time) (*letters, error) {
	out := &letters{At: now, From: now.Add(-lettersSpan)}
	log, err := kafkalog.OpenMerge(ctx, clients.Log(d.kafka, "tallygate-console"), d.topic, out.From, time.Time{})
	if err != nil {
		return nil, err
	}
	defer log.Close()
	groups := map[[2]string]*letterGroup{}
	seen := map[deadletter.Place]bool{}
	for {
		_, rec, err := log.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if _, bad := errors.AsType[*kafkalog.Unreadable](err); bad {
			continue
		}
		if err != nil {
			return nil, err
		}
		l := deadletter.Read(rec)
		if l.Known() && seen[l.Place] {
			continue
		}
		seen[l.Place] = true
		if out.All++; out.All > maxLetters {
			out.All, out.Cut = maxLetters, true
			break
		}
		note(groups, &l)
	}
	for _, g := range groups {
		out.Groups = append(out.Groups, *g)
	}
	slices.SortFunc(out.Groups, func(a, b letterGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Producer, b.Producer))
	})
	return out, nil
}

// maxProducers bounds what strangers can make the console keep.
const maxProducers = 200

func note(groups map[[2]string]*letterGroup, l *deadletter.Letter) {
	id := [2]string{words.Cell(l.Reason, 64), words.Cell(l.Producer(), 64)}
	if groups[id] == nil && len(groups) >= maxProducers {
		id[1] = "(other)"
	}
	g := groups[id]
	if g == nil {
		g = &letterGroup{Reason: id[0], Producer: id[1], First: l.At.Time(), Places: map[string]int{}}
		groups[id] = g
	}
	g.Count++
	g.Last = l.At.Time()
	g.About, g.Shape = words.Cell(l.About(), 300), l.Shape()
	g.Record = fmt.Sprintf("%s/%d@%d", words.Cell(l.Topic, 100), l.Partition, l.Offset)
	if place := fmt.Sprintf("%s/%d", words.Cell(l.Topic, 100), l.Partition); len(g.Places) < maxProducers || g.Places[place] > 0 {
		g.Places[place]++
	}
}
