//go:build !unix

package term

import "os"

// terminalSignals are none here.
func terminalSignals() (resized, stopped <-chan os.Signal, quiet func()) {
	return nil, nil, func() {}
}

func stopSelf() {}
