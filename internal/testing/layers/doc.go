// Package layers holds this repository's own rules, as tests: who may import whom, what a
// pure package must not touch, and how its files look. It has no code.
package layers
