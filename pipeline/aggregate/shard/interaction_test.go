package shard

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

// TestInteractions plays the pages of testdata: each is a story of owners, logs and crashes. A page
// is blocks of a command, with lines of input below it if it needs any, then ----, then what is
// seen, up to an empty line. Each method named play… says what its command is.
func TestInteractions(t *testing.T) {
	pages, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, page := range pages {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".txt"), func(t *testing.T) { playPage(t, page) })
	}
}

func playPage(t *testing.T, page string) {
	src, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{simGroup: newStageGroup(t), named: map[string]*simOwner{}}
	var played strings.Builder
	for lines := bufio.NewScanner(strings.NewReader(string(src))); lines.Scan(); {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			played.WriteString(line + "\n")
			continue
		}
		var input []string
		for lines.Scan() && lines.Text() != "----" {
			input = append(input, lines.Text())
		}
		for lines.Scan() && lines.Text() != "" {
			continue // what was seen before
		}
		got := s.play(strings.Fields(line), input)
		played.WriteString(strings.Join(slices.Concat([]string{line}, input, []string{"----"}, got, []string{""}), "\n") + "\n")
	}
	testrun.Golden(t, page, played.String())
}

// stage plays a page: the logs of a group, and owners that have names.
type stage struct {
	*simGroup
	named map[string]*simOwner
	said  []string
}

// newStageGroup is a group without owners.
func newStageGroup(t *testing.T) *simGroup {
	w := &simGroup{t: t, now: event.FromTime(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)), cfg: simConfig, found: simFound}
	for p := range int32(simPartitions) {
		w.input[p], w.loop[p], w.table[p], w.verdicts[p] = &simLog{}, &simLog{}, &simLog{}, &simLog{}
	}
	return w
}

func (s *stage) say(format string, args ...any) {
	s.said = append(s.said, strings.Split(fmt.Sprintf(format, args...), "\n")...)
}

// play carries a command out, and returns what is seen.
func (s *stage) play(words, input []string) []string {
	s.said = nil
	commands := map[string]func(args []string, input []string){
		"rules": s.playRules, "event": s.playEvent, "takeover": s.playTakeover, "read": s.playRead, "append": s.playAppend, "ack": s.playAck,
		"checkpoint": s.playCheckpoint, "crash": s.playCrash, "reload": s.playReload, "judge": s.playJudge, "command": s.playCommand,
		"counts": s.playCounts, "published": s.playPublished, "later": s.playLater,
		"config": s.playConfig, "found": s.playFound, "topic": s.playTopic, "raw": s.playRaw, "cut": s.playCut, "epoch": s.playEpoch,
		"unreadable": s.playUnreadable, "sweep": s.playSweep, "ends": s.playEnds,
	}
	play := commands[words[0]]
	if play == nil {
		s.t.Fatalf("no command %q", words[0])
	}
	play(words[1:], input)
	if len(s.said) == 0 {
		s.say("nothing")
	}
	return s.said
}

func (s *stage) owner(name string) *simOwner {
	o := s.named[name]
	if o == nil {
		s.t.Fatalf("no owner %q", name)
	}
	return o
}

// asked writes the requests of an owner's shard since it was looked at.
func (s *stage) asked(o *simOwner) {
	e := o.s.Effects()
	for _, a := range e.States {
		urgently := ""
		if a.Urgent {
			urgently = " at once"
		}
		s.say("wants%s %s", urgently, describeState(a.Key, a.Value))
	}
	for _, f := range e.Forwards {
		from, _, body, err := decodeForward(f.Value)
		o.must(err)
		s.say("wants a forward to %d: from %d at %d.%d %s", f.To, from.partition, from.offset, from.index, body)
	}
	for _, a := range e.Verdicts {
		s.say("wants %s", describeVerdict(a.Key, a.Value))
	}
	for _, a := range e.Aux {
		s.sayAux(&a)
	}
	for _, p := range e.Published {
		s.say("knows as published: %s", describeVerdict(p.Key, p.Value))
	}
	for _, d := range e.Done {
		s.say("command %s is done, had a state: %t", d.ID, d.Had)
	}
	for _, b := range e.Blown {
		s.say("fuse of %s has blown, of %d keys", b.Rule, b.Keys)
	}
	for _, skip := range e.Skipped {
		s.say("skips rule %s: %s", skip.Rule.Name, skip.Reason)
	}
	for _, n := range e.Notes {
		s.say("%s: %s%s", []string{"info", "warning", "error"}[n.Level], n.Text, describeArgs(n.Args))
	}
	o.collect()
}

func (s *stage) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *stage) playRules(_, input []string) {
	s.rules = Rules{Number: s.rules.Number + 1, Published: s.rules.Published + 1, Set: compile(s.t, "  rules:\n    - "+strings.Join(input, "\n    - "))}
	s.say("version %d", s.rules.Number)
}

// event PARTITION NAME=VALUE …: emitter and seq are headers.
func (s *stage) playEvent(args, _ []string) {
	e := simEntry{at: s.now}
	p := s.number(args[0])
	fields, headers, times := []string{}, [][]byte{}, 1
	for _, a := range args[1:] {
		name, value, _ := strings.Cut(a, "=")
		switch name {
		case "times": // in place of % stands the how manieth it is
			times = s.number(value)
		case "emitter":
			headers = append(headers, []byte(event.HeaderInstance), []byte(value))
		case "sent-to":
			headers = append(headers, []byte(event.HeaderPartition), event.AppendPartition(nil, int32(s.number(value))))
		case "seq":
			headers = append(headers, []byte(event.HeaderSequence), event.AppendSequence(nil, uint64(s.number(value))))
		case "cost":
			fields = append(fields, fmt.Sprintf("%q:%s", name, value))
		default:
			fields = append(fields, fmt.Sprintf("%q:%q", name, value))
		}
	}
	e.value, e.headers = []byte("{"+strings.Join(fields, ",")+"}"), record.HeadersOf(headers...)
	for i := range times {
		one := e
		one.value = bytes.ReplaceAll(e.value, []byte("%"), strconv.AppendInt(nil, int64(i), 10))
		s.input[p].append(-1, 0, one)
	}
	if last := s.input[p].end() - 1; times > 1 {
		s.say("input %d at %d to %d", p, last-int64(times)+1, last)
	} else {
		s.say("input %d at %d", p, last)
	}
}

// takeover PARTITION NAME
func (s *stage) playTakeover(args, _ []string) {
	id := int32(s.number(args[0]))
	s.epochs[id]++
	o, err := s.tryBegin(id)
	if err != nil {
		s.say("refused: %v", err)
		if errors.Is(err, ErrFinal) {
			s.say("and another takeover is refused, too")
		}
		return
	}
	s.named[args[1]] = o
	s.say("epoch %d, goes on at %d and %d", o.epoch, o.s.log.Next(Input), o.s.log.Next(Loop))
	s.sayResumed(o)
	s.asked(o)
}

// read NAME input|loop [RECORDS]
func (s *stage) playRead(args, _ []string) {
	o := s.owner(args[0])
	most := 1
	if len(args) > 2 {
		most = s.number(args[2])
	}
	was := *o.s.Tally()
	switch any, err := o.step(s.source(args[1]), most); {
	case err != nil:
		s.say("fails: %v", err)
	case !any:
		s.say("no record")
	}
	s.sayTally(&was, o.s.Tally())
	s.asked(o)
}

func (s *stage) source(name string) Source {
	if name == "loop" {
		return Loop
	}
	return Input
}

// append NAME states|verdicts|PARTITION [RECORDS]: what it asked for comes into the log.
func (s *stage) playAppend(args, _ []string) {
	o := s.owner(args[0])
	which := map[string]int{"states": 0, "verdicts": 1}[args[1]]
	if args[1] != "states" && args[1] != "verdicts" {
		which = 2 + s.number(args[1])
	}
	for !o.dead && o.send(which) {
		if o.dead {
			s.say("refused: it was replaced")
			return
		}
		s.say("appended")
	}
}

// ack NAME states|verdicts
func (s *stage) playAck(args, _ []string) {
	o := s.owner(args[0])
	for o.acknowledge1(map[string]int{"states": 0, "verdicts": 1}[args[1]]) {
		s.asked(o)
	}
}

// checkpoint NAME: all of it.
func (s *stage) playCheckpoint(args, _ []string) {
	o := s.owner(args[0])
	for o.checkpoint() || o.phase != idle {
		for which := range simQueues {
			for !o.dead && o.send(which) {
			}
		}
		if o.dead {
			s.say("refused: it was replaced")
			return
		}
		for which := range 2 {
			for o.acknowledge(which) {
			}
		}
		if o.phase == idle {
			s.say("next %d and %d are covered", o.s.log.covered[Input], o.s.log.covered[Loop])
			s.sayCheckpoint(o.id)
			return
		}
	}
}

func (s *stage) playCrash(args, _ []string) {
	delete(s.named, args[0])
	s.say("gone")
}

// reload NAME: it uses the newest rules.
func (s *stage) playReload(args, _ []string) {
	o := s.owner(args[0])
	o.must(o.s.judge.Use(s.rules))
	s.asked(o)
}

// judge NAME: the whole pass.
func (s *stage) playJudge(args, _ []string) {
	o := s.owner(args[0])
	for !o.s.judge.AllJudged() {
		keys, _ := o.s.judge.NextToJudge(o.s.rules.Rules)
		for _, key := range keys {
			n, err := o.s.judge.Key(key, o.clock())
			o.must(err)
			if n > 0 {
				s.say("%s: %d changed", key, n)
			}
		}
		o.s.judge.PartJudged(o.s.rules.Rules)
	}
	o.must(o.s.judge.PassDone(o.s.rules.Rules))
	s.asked(o)
}

// counts NAME: of each key and limit.
func (s *stage) playCounts(args, _ []string) {
	o := s.owner(args[0])
	for part := range Parts {
		keys, _ := o.s.KeysBehind(part, "", 1000)
		for _, key := range keys {
			state, err := o.s.State(key)
			o.must(err)
			dims, err := event.ParseKey(key)
			o.must(err)
			for _, e := range o.s.Explainer(dims).Explain(state, key, s.now, "") {
				more := ""
				if e.Verdict != nil {
					more = ", " + kindOf(e.Verdict)
				}
				if e.Exempt {
					more += ", exempt"
				}
				s.say("%s of %s: %v of %v%s", e.Rule, key, e.Count, e.Limit, more)
			}
		}
	}
	slices.Sort(s.said)
}

// published PARTITION: the verdict topic.
func (s *stage) playPublished(args, _ []string) {
	for offset, e := range s.verdicts[s.number(args[0])].entries {
		s.say("%d: %s", offset, describeVerdict(e.key, e.value))
	}
}
