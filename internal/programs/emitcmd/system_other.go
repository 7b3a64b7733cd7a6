//go:build !unix

package emitcmd

import (
	"errors"
	"os"
)

// lockFile refuses to follow a file: without an identity that outlives a rename, lines of a rotated
// file would be sent twice, or not at all.
func lockFile(*os.File) error {
	return errors.New("files are followed on Linux and macOS only: run the command there, in a container or in WSL, or without --follow")
}

// identity returns the numbers that a file keeps when it is renamed: none that are known here.
func identity(os.FileInfo) (device, inode uint64) { return 0, 0 }
