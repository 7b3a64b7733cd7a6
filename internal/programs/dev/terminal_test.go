package dev

import (
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// A client chooses its uid: it draws nothing on the screen.
func TestScreenIsSafeForTerminals(t *testing.T) {
	s, out := testScreen()
	s.Apply(0, []verdict.Verdict{{Rule: "r\x1b[2J", Key: []event.Dim{{Name: "uid", Value: "a\x1b]0;x\a\nb\u202e"}}, State: verdict.Block, Action: verdict.ActBlock,
		Limit: event.One, Since: now(), Until: now() + event.Hour, Seq: 1}})
	s.say("an error: \x1b[31m\r")
	s.permits("\x1b[H", 1, 2)
	if text := out.String(); strings.ContainsAny(text, "\x1b\a\r\u202e") || strings.Count(text, "\n") != 3 || !strings.Contains(text, `uid=a\x1b]0;x\a\nb\u202e`) {
		t.Errorf("%q", text)
	}
}
