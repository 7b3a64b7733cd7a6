//go:build unix

package emitcmd

import (
	"errors"
	"os"
	"syscall"
)

// lockFile locks a file for this process, until it is closed.
func lockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errors.New("another process follows with it: end that one, or name another file by --state FILE")
	}
	return err
}

// identity returns the numbers that a file keeps when it is renamed.
func identity(info os.FileInfo) (device, inode uint64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return unsigned(st.Dev), unsigned(st.Ino)
	}
	return 0, 0
}

// unsigned is one of a Stat_t, whose types differ: macOS has devices of 32 bits.
func unsigned[T int32 | uint32 | int64 | uint64](n T) uint64 { return uint64(n) }
