//go:build unix

package term

import (
	"os"
	"os/signal"
	"syscall"
)

// terminalSignals subscribes to SIGWINCH and SIGTSTP; quiet ends that.
func terminalSignals() (resized, stopped <-chan os.Signal, quiet func()) {
	size, stop := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(size, syscall.SIGWINCH)
	signal.Notify(stop, syscall.SIGTSTP)
	return size, stop, func() {
		signal.Stop(size)
		signal.Stop(stop)
	}
}

// stopSelf stops the process, as Ctrl-Z does, until SIGCONT. It waits for SIGCONT because SIGSTOP
// may reach another thread first, and this one would continue for a moment.
func stopSelf() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	if syscall.Kill(os.Getpid(), syscall.SIGSTOP) == nil {
		<-continued
	}
}
