package shard

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

var update = flag.Bool("update", false, "write what the interaction tests see into their pages")

// TestInteractions plays the pages of testdata: each is a story of owners, logs and crashes. A page
// is blocks of a command, with lines of input below it if it needs any, then ----, then what is
// seen, up to an empty line. TESTDATA.md has the commands.
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
		var input, want []string
		for lines.Scan() && lines.Text() != "----" {
			input = append(input, lines.Text())
		}
		for lines.Scan() && lines.Text() != "" {
			want = append(want, lines.Text())
		}
		got := s.play(strings.Fields(line), input)
		if !*update && !slices.Equal(got, want) {
			t.Errorf("%s: %s\ngot:\n%s\nwant:\n%s", page, line, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		played.WriteString(strings.Join(slices.Concat([]string{line}, input, []string{"----"}, got, []string{""}), "\n") + "\n")
	}
	if *update {
		if err := os.WriteFile(page, []byte(played.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// stage is where a page is played: the logs of a group, and owners that have names.
type stage struct {
	*simGroup
	named map[string]*simOwner
	said  []string
}

// newStageGroup is a group without owners.
func newStageGroup(t *testing.T) *simGroup {
	w := &simGroup{t: t, now: event.FromTime(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)), counts: map[string]int64{}}
	for p := range int32(simPartitions) {
		w.input[p], w.loop[p], w.table[p], w.verdicts[p] = &simLog{}, &simLog{}, &simLog{}, &simLog{}
	}
	return w
}

func (s *stage) say(format string, args ...any) {
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

// play carries a command out, and returns what is seen.
func (s *stage) play(words, input []string) []string {
	s.said = nil
	commands := map[string]func(args []string, input []string){
		"rules": s.playRules, "event": s.playEvent, "takeover": s.playTakeover, "read": s.playRead, "append": s.playAppend, "ack": s.playAck,
		"checkpoint": s.playCheckpoint, "crash": s.playCrash, "reload": s.playReload, "judge": s.playJudge, "command": s.playCommand,
		"counts": s.playCounts, "published": s.playPublished, "later": s.playLater,
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

// asked says what an owner's shard has asked for since it was looked at.
func (s *stage) asked(o *simOwner) {
	e := o.s.Effects()
	for _, a := range e.States {
		s.say("wants %s", describeState(a.Key, a.Value))
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
		if a.Topic == DeadLetters {
			s.say("wants a dead letter: %s", a.Reason)
		}
	}
	for _, p := range e.Published {
		s.say("knows as published: %s", describeVerdict(p.Key, p.Value))
	}
	for _, d := range e.Done {
		s.say("command %s is done", d.ID)
	}
	for _, n := range e.Notes {
		s.say("notes: %s", n.Text)
	}
	o.collect()
}

func describeState(key, value []byte) string {
	switch {
	case string(key) == CheckpointKey:
		c, err := decodeCheckpoint(value)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("checkpoint: next %d and %d, judged %d of %d", c.Next[Input], c.Next[Loop], c.Judged.Done, Parts)
	case isOwnerRecord(key):
		return fmt.Sprintf("%q", key)
	case value == nil:
		return fmt.Sprintf("tombstone of %s", key)
	}
	pending, raw, err := decodeWire(value)
	if err != nil {
		return err.Error()
	}
	b, err := decodeBlock(raw)
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("state of %s, applied %d and %d", key, b.applied[Input].next, b.applied[Loop].next)
	for _, u := range pending {
		v, err := verdict.Parse(u.body)
		if err != nil {
			return err.Error()
		}
		text += fmt.Sprintf(", unpublished: %s of %s", v.State, v.Rule)
	}
	return text
}

func describeVerdict(key, value []byte) string {
	if isOwnerRecord(key) {
		return "a fence"
	}
	if value == nil {
		return fmt.Sprintf("tombstone of %s", key)
	}
	v, err := verdict.Parse(value)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s of %s on %s, seq %d", v.State, v.Rule, v.KeyText(), v.Seq)
}

func (s *stage) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *stage) playRules(_, input []string) {
	s.rules = Rules{Number: s.rules.Number + 1, Set: compile(s.t, "  rules:\n    - "+strings.Join(input, "\n    - "))}
	s.say("version %d", s.rules.Number)
}

// event PARTITION NAME=VALUE …: emitter and seq are headers.
func (s *stage) playEvent(args, _ []string) {
	e := simEntry{at: s.now}
	p := s.number(args[0])
	fields, headers := []string{}, [][]byte{}
	for _, a := range args[1:] {
		name, value, _ := strings.Cut(a, "=")
		switch name {
		case "emitter":
			headers = append(headers, []byte(event.HeaderInstance), []byte(value))
		case "seq":
			headers = append(headers, []byte(event.HeaderSequence), event.AppendSequence(nil, uint64(s.number(value))))
		default:
			fields = append(fields, fmt.Sprintf("%q:%q", name, value))
		}
	}
	e.value, e.headers = []byte("{"+strings.Join(fields, ",")+"}"), record.HeadersOf(headers...)
	offset, _ := s.input[p].append(-1, 0, e)
	s.say("input %d at %d", p, offset)
}

// takeover PARTITION NAME
func (s *stage) playTakeover(args, _ []string) {
	id := int32(s.number(args[0]))
	s.epochs[id]++
	o := s.begin(id)
	s.named[args[1]] = o
	s.say("epoch %d, goes on at %d and %d", o.epoch, o.s.Next(Input), o.s.Next(Loop))
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
	if !o.step(s.source(args[1]), most) {
		s.say("no record")
	}
	if n := o.s.Tally().Replayed - was.Replayed; n > 0 {
		s.say("skips %d that it has applied", n)
	}
	if n := o.s.Tally().ProducerRepeat - was.ProducerRepeat; n > 0 {
		s.say("skips %d that an emitter has sent again", n)
	}
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
			s.say("next %d and %d are covered", o.s.covered[Input], o.s.covered[Loop])
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
	o.must(o.s.Use(s.rules))
	s.asked(o)
}

// judge NAME: the whole pass.
func (s *stage) playJudge(args, _ []string) {
	o := s.owner(args[0])
	for !o.s.AllJudged() {
		keys, _ := o.s.NextToJudge(o.s.Rules())
		for _, key := range keys {
			n, err := o.s.Judge(key, o.clock())
			o.must(err)
			if n > 0 {
				s.say("%s: %d changed", key, n)
			}
		}
		o.s.PartJudged(o.s.Rules())
	}
	o.must(o.s.PassDone(o.s.Rules()))
	s.asked(o)
}

// command NAME COMMAND KEY
func (s *stage) playCommand(args, _ []string) {
	o := s.owner(args[0])
	c := CommandRecord{ID: "c1", Command: args[1], Key: args[2], Reason: "a test", By: "tester"}
	if args[1] == "block" {
		c.For = event.Hour
	}
	o.must(o.s.Command(&c, c.Key, s.now))
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
			for _, e := range o.s.Rules().Set.Explain(state, key, s.now, "") {
				blocked := ""
				if e.Verdict != nil {
					blocked = ", " + e.Verdict.State.String()
				}
				s.say("%s of %s: %v of %v%s", e.Rule, key, e.Count, e.Limit, blocked)
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

// later DURATION
func (s *stage) playLater(args, _ []string) {
	d, err := time.ParseDuration(args[0])
	if err != nil {
		s.t.Fatal(err)
	}
	s.now += event.FromDuration(d)
	s.say("it is %v", cmp.Or(s.now, 0))
}
