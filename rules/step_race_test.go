//go:build race

package rules

// The race detector makes a random timeline ten times as slow.
func init() { modelSeeds, bookSeeds = 10, 4 }
