package e2e

import (
	"fmt"
	"testing"

	"github.com/tallygate/tallygate/internal/console/browsertest"
)

// Support clicks through every action on a key, on real servers and in a real browser. What each click does is in the
// enforcer's answer, in the audit topic and on the page.
func TestEachActionOnAKeyIsClicked(t *testing.T) {
	b := browsertest.Start(t)
	w := startClicks(t)
	w.emits("42", 6)
	w.denies("42")
	w.denies("42") // a block is there, and stays

	support := w.logsIn(b, "operator", "/key")
	support.searches("uid=42")
	support.sees("uid=42", "is blocked by the rule searches", "6 of 5", "guard")
	key := support.path()
	for _, step := range []struct {
		name   string
		clicks func(w *clickRig, c *clicker)
	}{
		{"unblock", (*clickRig).unblocks}, {"block", (*clickRig).blocks}, {"reset", (*clickRig).resets}, {"exempt", (*clickRig).exempts},
		{"show", func(w *clickRig, _ *clicker) { w.shows(b, key) }}, {"erase", func(w *clickRig, _ *clicker) { w.erases(b, key) }},
	} {
		t.Run(step.name, func(t *testing.T) {
			c := &clicker{support.Page, t, support.site}
			c.opens(key)
			step.clicks(w.with(t), c)
		})
	}
}

// unblocks ends the block, blocks again by the undo of that, and undoes this, too.
func (w *clickRig) unblocks(c *clicker) {
	c.follows(`a[href$="/unblock"]`)
	c.sees("Ends 1 verdict in 1 key.", "Only the rule searches: ends 1 verdict.")
	c.does("clicked: unblock")
	c.sees("Unblocked uid=42: 1 verdict ended", "nothing is enforced")
	w.allows("42")
	w.audits("command", "unblock", "clicked: unblock", "ann-operator")
	c.offered("Undo: block again")
	c.follows(`.undo button`)
	c.sees("Blocked uid=42 until")
	w.denies("42")
	c.follows(`.notice.ok form button`)
	c.sees("Unblocked uid=42: 1 verdict ended")
	w.allows("42")
	w.audits("command", "unblock", "undo of command")
}

func (w *clickRig) blocks(c *clicker) {
	c.follows(`a[href$="/block"]`)
	c.sees("What it would do now", "Blocks uid=42.")
	c.fills("for", "10m")
	c.does("clicked: block")
	c.sees("Blocked uid=42 until", "Undo: unblock")
	w.denies("42")
	w.audits("command", `"block"`, "clicked: block", "ann-operator")
	c.follows(`.notice.ok form button`)
	c.sees("Unblocked uid=42: 1 verdict ended")
	w.allows("42")
}

// resets sets the counts to zero: they had been above the limit, so that one event more was a block.
func (w *clickRig) resets(c *clicker) {
	w.emits("42", 1)
	w.denies("42")
	c.follows(`a[href$="/reset"]`)
	c.sees("Ends 1 verdict in 1 key.", "Sets the counts of 1 key to zero.")
	c.does("clicked: reset")
	c.sees("Reset uid=42: 1 key set to zero, 1 verdict ended", "0 of 5")
	w.allows("42")
	w.audits("command", "reset", "clicked: reset", "ann-operator")
}

// exempts a key, and ends that once by the undo and once from the list.
func (w *clickRig) exempts(c *clicker) {
	w.emits("42", 6)
	w.denies("42")
	for i, end := range []func(){
		func() { c.follows(`.notice.ok form button`) },
		func() {
			c.opens("/exemptions")
			c.sees("clicked: exempt 1", "ann-operator")
			c.follows(`main a[href*="/end-exemption"]`)
			c.sees("1 exemption by command holds for this key.")
			c.does("clicked: end")
		},
	} {
		c.follows(`a[href$="/exempt"]`)
		c.fills("for", "30m")
		c.does(fmt.Sprintf("clicked: exempt %d", i))
		c.sees("Exempted uid=42 until", "Undo: end the exemption")
		w.allows("42")
		w.audits("command", "exempt", fmt.Sprintf("clicked: exempt %d", i), "ann-operator")
		w.emits("42", 1)
		w.caughtUp()
		if w.denied("42") {
			w.t.Error("an exempt key is denied")
		}
		end()
		c.sees("Ended 1 exemption of uid=42")
		w.emits("42", 1)
		w.denies("42")
	}
	w.audits("command", "exempt", "clicked: end")
}

// shows a masked key to another operator.
func (w *clickRig) shows(b *browsertest.Browser, key string) {
	c := w.logsIn(b, "operator", key)
	c.sees("The key is masked", "uid=•••")
	c.follows(`main form button.small`)
	c.sees("The key is shown to you for half an hour", "uid=42")
	w.audits(`"read"`, `"show"`, "uid=42", "ann-operator")
}

// erases is for admins.
func (w *clickRig) erases(b *browsertest.Browser, key string) {
	c := w.logsIn(b, "admin", key)
	c.follows(`a[href$="/erase"]`)
	c.sees("Erases the counts and verdicts of 1 key.", "Type the key to confirm")
	c.fills("confirm", "uid=42")
	c.does("clicked: erase")
	c.sees("Erased uid=•••", "1 verdict ended")
	w.allows("42")
	w.audits("command", "forget", "clicked: erase", "ann-admin")
}
