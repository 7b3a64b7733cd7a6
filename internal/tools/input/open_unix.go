//go:build unix

package input

import "syscall"

// withoutWaiting opens a pipe at once, though nobody writes to it.
const withoutWaiting = syscall.O_NONBLOCK
