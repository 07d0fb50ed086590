//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package term

import "os"

// singleKeys returns false: on this system, a key is read with its line.
func singleKeys(*os.File) (restore func(), ok bool) { return nil, false }
