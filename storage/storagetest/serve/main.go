// Serve starts a Postgres server for tests, runs a command, and stops the server when the command
// ends. TURNKEEPER_TEST_POSTGRES gives the command the address of the server, and
// TURNKEEPER_TEST_RUN a folder that is removed after the run:
//
//	serve go test ./...
//
// It exits with the command's code. However it ends, nothing that the command started stays behind
// for more than a few seconds.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"turnkeeper/internal/testrun"
	"turnkeeper/storage/storagetest"
)

func main() { os.Exit(testrun.Run(func() int { return run(os.Args[1:]) })) }

func run(command []string) int {
	if len(command) == 0 {
		fmt.Fprintln(os.Stderr, "usage: serve COMMAND [ARGUMENT...]")
		return 2
	}
	// Signals are forwarded to the command, which decides when to end.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)

	ctx := context.Background()
	server, err := storagetest.StartServer(ctx, filepath.Join(os.TempDir(), "postgres"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := await(command, server.URL(), signals)
	if err := server.Close(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func await(command []string, url string, signals <-chan os.Signal) int {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), storagetest.ServerVariable+"="+url, storagetest.RunVariable+"="+os.TempDir())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s)
		case err := <-ended:
			if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() >= 0 {
				return exit.ExitCode()
			} else if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			return 0
		}
	}
}
