//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package cli

import "os"

// terminalSize says whether the file is a terminal; its size is not known.
func terminalSize(file *os.File) (columns, rows int, ok bool) {
	info, err := file.Stat()
	return 0, 0, err == nil && info.Mode()&os.ModeCharDevice != 0
}
