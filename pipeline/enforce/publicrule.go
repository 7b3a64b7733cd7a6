package enforce

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// unnamed replaces the name of a rule without a public name, where a field requires one.
const unnamed = "limit"

// PublicRule is a rule's name and messages for callers.
type PublicRule struct {
	// Name is the rule's name; "" is the public name that its verdicts have, or none.
	Name string
	// Messages are by language tag, such as de or pt-BR; "" is the default language. The request's
	// Accept-Language chooses. {rule} and {seconds} are replaced; {rule} is "limit" for a rule
	// without a public name.
	Messages map[string]string
}

// message returns the message in the best requested language, and its tag. otherwise is for rules
// without messages.
func (p *PublicRule) message(otherwise map[string]string, languages string, seconds int64) (text, tag string) {
	messages := p.Messages
	if len(messages) == 0 {
		messages = otherwise
	}
	tag = choose(messages, languages)
	text, ok := messages[tag]
	const wait = "{seconds}"
	if seconds == 0 && (!ok || strings.Contains(text, wait)) { // there is nothing to wait for
		if p.Name == "" {
			return "A limit was exceeded.", ""
		}
		return fmt.Sprintf("The limit of %q was exceeded.", p.Name), ""
	}
	if !ok {
		if p.Name == "" {
			return fmt.Sprintf("A limit was exceeded; try again in %d s.", seconds), ""
		}
		return fmt.Sprintf("The limit of %q was exceeded; try again in %d s.", p.Name, seconds), ""
	}
	return strings.NewReplacer("{rule}", cmp.Or(p.Name, unnamed), wait, strconv.FormatInt(seconds, 10)).Replace(text), tag
}

// choose returns the tag of the messages that fits Accept-Language best, by RFC 4647's lookup; ""
// when none fits.
func choose(messages map[string]string, languages string) string {
	if len(messages) == 0 || len(languages) > 1024 { // no browser sends a longer one
		return ""
	}
	type wish struct {
		tag     string
		quality float64
	}
	var wishes []wish
	for part := range strings.SplitSeq(languages, ",") {
		tag, parameters, _ := strings.Cut(part, ";")
		w := wish{strings.TrimSpace(tag), 1}
		if q, ok := strings.CutPrefix(strings.TrimSpace(parameters), "q="); ok {
			w.quality, _ = strconv.ParseFloat(q, 64)
		}
		if w.tag != "" && w.quality > 0 {
			wishes = append(wishes, w)
		}
	}
	slices.SortStableFunc(wishes, func(a, b wish) int {
		switch {
		case a.quality > b.quality:
			return -1
		case a.quality < b.quality:
			return 1
		}
		return 0
	})
	for _, w := range wishes {
		for tag := w.tag; tag != ""; {
			for has := range messages {
				if strings.EqualFold(has, tag) {
					return has
				}
			}
			tag = tag[:max(strings.LastIndexByte(tag, '-'), 0)]
		}
	}
	return ""
}
