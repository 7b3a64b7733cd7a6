//go:build !unix

package input

// withoutWaiting is nothing where files that wait have no names.
const withoutWaiting = 0
