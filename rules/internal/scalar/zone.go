package scalar

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/tallygate/tallygate/windows"
)

var (
	offsetZone   = regexp.MustCompile(`^(?:UTC|GMT|utc|gmt|Z)? ?([+-])(\d{1,2})(?::?(\d\d))?$`)
	invertedZone = regexp.MustCompile(`^Etc/GMT([+-])([1-9]\d?)$`)
)

// abbreviations are zones by the letters that clocks show. They are no names, as some mean several.
var abbreviations = map[string]string{
	"PST": "America/Los_Angeles", "PDT": "America/Los_Angeles", "PT": "America/Los_Angeles", "MDT": "America/Denver", "MT": "America/Denver",
	"CDT": "America/Chicago", "CT": "America/Chicago", "EDT": "America/New_York", "ET": "America/New_York", "AKST": "America/Anchorage", "AKDT": "America/Anchorage",
	"BST": "Europe/London", "CEST": "Europe/Berlin", "EEST": "Europe/Kyiv", "MSK": "Europe/Moscow", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "KST": "Asia/Seoul",
	"SGT": "Asia/Singapore", "HKT": "Asia/Hong_Kong", "AEST": "Australia/Sydney", "AEDT": "Australia/Sydney", "NZST": "Pacific/Auckland", "BRT": "America/Sao_Paulo",
	"Z": "UTC", "LOCAL": "UTC",
}

// offsets are places with an offset from UTC all year, or in winter.
var offsets = map[string]string{
	"+0": "UTC", "-0": "UTC", "+1": "Europe/Berlin", "+2": "Europe/Kyiv", "+3": "Europe/Moscow", "+3:30": "Asia/Tehran", "+4": "Asia/Dubai", "+5": "Asia/Karachi",
	"+5:30": "Asia/Kolkata", "+6": "Asia/Dhaka", "+7": "Asia/Jakarta", "+8": "Asia/Shanghai", "+9": "Asia/Tokyo", "+10": "Australia/Brisbane", "+12": "Pacific/Auckland",
	"-3": "America/Sao_Paulo", "-4": "America/Santiago", "-5": "America/New_York", "-6": "America/Chicago", "-7": "America/Denver", "-8": "America/Los_Angeles",
	"-10": "Pacific/Honolulu",
}

// foreignZone guesses the place that an offset or an abbreviation stands for; "" when it is neither.
func foreignZone(name string) string {
	if name == "CST" {
		return `"America/Chicago" or "Asia/Shanghai"`
	}
	if zone := abbreviations[strings.ToUpper(name)]; zone != "" {
		return fmt.Sprintf("%q", zone)
	}
	m := offsetZone.FindStringSubmatch(name)
	if m == nil {
		return ""
	}
	hours := strings.TrimPrefix(m[2], "0")
	if hours == "" {
		hours = "0"
	}
	offset := m[1] + hours
	if m[3] != "" && m[3] != "00" {
		offset += ":" + m[3]
	}
	if zone := offsets[offset]; zone != "" {
		return fmt.Sprintf("%q", zone)
	}
	return ""
}

// ZoneDoubt says of a zone that people take for another one what it really is.
func ZoneDoubt(name string) (problem, hint string) {
	if m := invertedZone.FindStringSubmatch(name); m != nil {
		where, other := "behind", "-"
		if m[1] == "-" {
			where, other = "ahead of", "+"
		}
		hint = fmt.Sprintf("for UTC%s%s write Etc/GMT%s%s", m[1], m[2], other, m[2])
		if zone := offsets[m[1]+m[2]]; zone != "" {
			hint += ", or a place such as " + zone
		}
		return fmt.Sprintf("%s is %s hours %s UTC: in these names the sign is inverted", name, m[2], where), hint
	}
	if place := map[string]string{"EST": "America/New_York", "MST": "America/Denver", "HST": "Pacific/Honolulu"}[name]; place != "" {
		return name + " has no summer time", "where clocks change, name a place such as " + place
	}
	return "", ""
}

// Zones keeps the zones that were loaded: finding one takes a walk through the database.
type Zones map[string]*time.Location

// Load returns a zone; nil when there is none of that name.
func (z Zones) Load(name string) *time.Location {
	zone, known := z[name]
	if !known {
		zone, _ = windows.LoadZone(name)
		z[name] = zone
	}
	return zone
}

// Meant guesses the zone from the spelling, or from the city alone.
func (z Zones) Meant(name string) string {
	if meant := foreignZone(name); meant != "" {
		return "; did you mean " + meant + "?"
	}
	spelled := []rune(strings.ToLower(strings.TrimSpace(strings.ReplaceAll(name, " ", "_"))))
	for i := range spelled {
		if i == 0 || spelled[i-1] == '/' || spelled[i-1] == '_' {
			spelled[i] = []rune(strings.ToUpper(string(spelled[i])))[0]
		}
	}
	for _, guess := range []string{string(spelled), strings.ToUpper(name)} {
		if len(guess) > 2 && guess != "UTC" && z.Load(guess) != nil {
			return fmt.Sprintf("; did you mean %q?", guess)
		}
	}
	for _, known := range commonZones {
		_, city, _ := strings.Cut(known, "/")
		if Closest(name, []string{known, city}) != "" {
			return fmt.Sprintf("; did you mean %q?", known)
		}
	}
	return ""
}

// commonZones are the candidates for a misspelt zone.
var commonZones = strings.Fields(`UTC
	Africa/Cairo Africa/Johannesburg Africa/Lagos Africa/Nairobi
	America/Argentina/Buenos_Aires America/Bogota America/Chicago America/Denver America/Lima
	America/Los_Angeles America/Mexico_City America/New_York America/Phoenix America/Santiago
	America/Sao_Paulo America/Toronto America/Vancouver
	Asia/Bangkok Asia/Dhaka Asia/Dubai Asia/Ho_Chi_Minh Asia/Hong_Kong Asia/Istanbul Asia/Jakarta
	Asia/Jerusalem Asia/Karachi Asia/Kolkata Asia/Kuala_Lumpur Asia/Manila Asia/Riyadh Asia/Seoul
	Asia/Shanghai Asia/Singapore Asia/Taipei Asia/Tehran Asia/Tokyo
	Atlantic/Reykjavik Australia/Brisbane Australia/Melbourne Australia/Perth Australia/Sydney
	Europe/Amsterdam Europe/Athens Europe/Berlin Europe/Brussels Europe/Bucharest Europe/Budapest
	Europe/Copenhagen Europe/Dublin Europe/Helsinki Europe/Istanbul Europe/Kyiv Europe/Lisbon
	Europe/London Europe/Madrid Europe/Moscow Europe/Oslo Europe/Paris Europe/Prague Europe/Rome
	Europe/Stockholm Europe/Vienna Europe/Warsaw Europe/Zurich
	Pacific/Auckland Pacific/Honolulu`)
