//go:build unix

package term

import (
	"os"
	"os/signal"
	"syscall"
)

// terminalSignals are those that a terminal sends to who draws on it.
func terminalSignals() (resized, stopped <-chan os.Signal, quiet func()) {
	size, stop := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(size, syscall.SIGWINCH)
	signal.Notify(stop, syscall.SIGTSTP)
	return size, stop, func() {
		signal.Stop(size)
		signal.Stop(stop)
	}
}

// stopSelf stops the process, as Ctrl-Z does, until it is told to go on. The signal may reach
// another thread first: this one waits, lest it goes on for a moment.
func stopSelf() {
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	defer signal.Stop(goesOn)
	if syscall.Kill(os.Getpid(), syscall.SIGSTOP) == nil {
		<-goesOn
	}
}
