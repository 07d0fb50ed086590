//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package term

import "os"

// singleKeys is not implemented on this system.
func singleKeys(*os.File) (restore func(), ok bool) { return nil, false }
