package verdict

import "strings"

// MatchAPI reports whether pattern names api. A '*' stands for any number of characters, none
// included, of one dotted segment; as the pattern's last character it takes all that follows, dots
// too. So up.* names up.a and up.a.b but not up, and *.get names a.get but not a.b.get.
func MatchAPI(pattern, api string) bool {
	if strings.IndexByte(pattern, '*') < 0 {
		return pattern == api
	}
	star, mark := -1, 0 // the last '*' met, and the end of what it stands for
	p, a := 0, 0
	for {
		if p < len(pattern) && pattern[p] == '*' {
			if p == len(pattern)-1 {
				return true
			}
			star, mark = p, a
			p++
			continue
		}
		if p < len(pattern) && a < len(api) && pattern[p] == api[a] {
			p++
			a++
			continue
		}
		if p == len(pattern) && a == len(api) {
			return true
		}
		// Only the last '*' need take more: an earlier one that did would leave it less of
		// its segment, and segments are lined up by the dots between them.
		if star < 0 || mark == len(api) || api[mark] == '.' {
			return false
		}
		mark++
		p, a = star+1, mark
	}
}

// Covers reports whether the verdict covers api.
func (v *Verdict) Covers(api string) bool {
	for _, pattern := range v.APIs {
		if MatchAPI(pattern, api) {
			return true
		}
	}
	return false
}
