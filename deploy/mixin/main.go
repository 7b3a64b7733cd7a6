// Command mixin compiles the alerts and the dashboard, and writes them where they are used:
//
//	go run .
//
// Its source is the jsonnet beside it. Installations that want other thresholds import mixin.libsonnet.
package main

import (
	"fmt"
	"os"
)

func main() {
	files, err := compile()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for name, content := range files {
		if err := os.WriteFile(name, content, 0o644); err != nil { //nolint:gosec // everybody may read them
			fmt.Fprintln(os.Stderr, "write what was compiled:", err)
			os.Exit(1)
		}
	}
}
