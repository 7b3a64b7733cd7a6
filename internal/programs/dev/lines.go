package dev

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/verdict"
)

// What --json writes: one object a line, which says in `type` what it is and in `at` when it was.

type line struct {
	Type string    `json:"type"`
	At   time.Time `json:"at"`
}

type startedLine struct {
	line
	addresses
	Embedded []string `json:"embedded"`
	Rules    string   `json:"rules"`
	Traffic  string   `json:"traffic"`
}

type verdictLine struct {
	line
	Verdict json.RawMessage `json:"verdict"`
}

type permitsLine struct {
	line
	UID      string `json:"uid"`
	Rule     string `json:"rule"`
	Admitted int    `json:"admitted"`
	Denied   int    `json:"denied"`
}

type noteLine struct {
	line
	Text string `json:"text"`
}

type summaryLine struct {
	line
	summary
}

// lineOf begins a line of this moment.
func lineOf(what string) line { return line{what, time.Now().UTC()} }

// write writes a line of --json.
func (s *screen) write(one any) {
	text, err := json.Marshal(one)
	if err != nil {
		text = fmt.Appendf(nil, `{"type": "note", "text": %q}`, err) // not reached: all of them marshal
	}
	_, _ = s.out.Write(append(text, '\n')) // who reads it has gone
}

// started prints all addresses.
func (s *screen) started(st *stack) {
	if s.json {
		s.write(startedLine{lineOf("started"), st.addresses(), append([]string{}, st.embedded...), st.rules.Name, st.traffic.String()})
		return
	}
	st.banner()
}

// ready says that everything works.
func (s *screen) ready() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.json {
		s.write(lineOf("ready"))
	}
}

// stopped is the last line.
func (s *screen) stopped() error {
	if s.json {
		s.write(lineOf("stopped"))
		return nil
	}
	_, err := fmt.Fprintln(s.out, "\nstopped")
	return err
}

// showJSON is show for --json.
func (s *screen) showJSON(v *verdict.Verdict) {
	s.write(verdictLine{lineOf("verdict"), verdict.AppendJSON(nil, v)})
}
