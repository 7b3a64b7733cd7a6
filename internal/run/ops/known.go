package ops

import (
	_ "embed"
	"slices"
	"strings"
)

//go:embed options.txt
var optionsText string

// allPrograms are the options of aggregator, enforcer, and of tallygate console, notify and doctor, sorted:
// go test ./internal/testing/layers -run OfAllPrograms -rewrite writes them.
var allPrograms = strings.Fields(optionsText)

// KnownOption reports whether a program that runs all the time, or the doctor, has an option of that name: then
// it may be in any config file.
func KnownOption(name string) bool {
	_, known := slices.BinarySearch(allPrograms, name)
	return known
}
