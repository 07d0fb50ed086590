//go:build !unix

package term

import "os"

// terminalSignals returns no signals on this system.
func terminalSignals() (resized, stopped <-chan os.Signal, quiet func()) {
	return nil, nil, func() {}
}

func stopSelf() {}
