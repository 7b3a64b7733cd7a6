package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/words"
)

// shownRate is the least rate of events a second that is worth a word.
const shownRate = 0.05

// rate is events per second: with a digit behind the point where there are few.
func rate(perSecond float64) string {
	if perSecond < 9.95 {
		return fmt.Sprintf("%.1f", perSecond)
	}
	return fmt.Sprintf("%.0f", perSecond)
}

// share is a part of 1.
func share(of float64) string {
	if of > 0 && of < 0.0005 {
		return "<0.1%"
	}
	return fmt.Sprintf("%.1f%%", 100*of)
}

// left writes the time until a moment, such as " (in 2h 5m)"; nothing of a moment that is over, or that is more than
// a hundred years ahead.
func left(until event.Micros) string {
	span := time.Until(until.Time()).Round(time.Second)
	if until == event.NoTime || span <= 0 || span > 100*365*24*time.Hour {
		return ""
	}
	return " (in " + spanText(span) + ")"
}

func clock(m event.Micros) string { return words.Clock(m) }

func spanText(span time.Duration) string { return words.Span(span) }

// exemptText lists a key's exemptions; list is empty where an older aggregator does not tell.
func exemptText(list []api.Exemption) string {
	if len(list) == 0 {
		return "exempt"
	}
	var each []string
	for i := range list {
		each = append(each, "exempt "+exemptionText(&list[i]))
	}
	return strings.Join(each, ", ")
}

// exemptedBy names who gave an exemption.
func exemptedBy(e *api.Exemption) string {
	if e.From == api.FromRules {
		return "the rule file"
	}
	return giver(e.By, e.OnBehalfOf)
}

// giver names who gave a command, and for whom.
func giver(by, onBehalfOf string) string {
	by = cmp.Or(cell(by, 128), "a command")
	if onBehalfOf != "" {
		by += " for " + cell(onBehalfOf, 128)
	}
	return by
}

// exemptionText says until when an exemption holds, who gave it, and why.
func exemptionText(e *api.Exemption) string {
	text := "without end"
	if e.Until != event.NoTime {
		text = "until " + clock(e.Until) + left(e.Until)
	}
	text += " by " + exemptedBy(e)
	if e.Reason != "" {
		text += ": " + cell(e.Reason, 400)
	}
	return text
}
