package program

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// run runs the program under a keeper. It returns when the family has ended, or
// killTime after ctx ended. An error means that the program did not end by
// itself; then stdout and stderr must not be read.
func (x execution) run(ctx context.Context, stdout, stderr io.Writer) (exit, error) {
	if ctx.Err() != nil {
		return exit{}, context.Cause(ctx)
	}
	k, err := x.startKeeper(bytes.NewReader(x.stdin), stdout, stderr)
	if err != nil {
		return exit{}, err
	}
	// Closing the orders makes the keeper kill the family.
	stop := context.AfterFunc(ctx, func() { _ = k.orders.Close() })
	defer stop()
	k.give(x.order(ctx))
	select {
	case <-k.done:
		return k.result(ctx)
	case <-ctx.Done():
	}
	late := time.NewTimer(killTime)
	defer late.Stop()
	select {
	case <-k.done:
		return k.result(ctx)
	case <-late.C: // the keeper continues to kill the family
		return exit{}, context.Cause(ctx)
	}
}

// keeperSlack is how long after the call's deadline a keeper kills the family
// by itself. It then assumes that the worker is stopped.
const keeperSlack = time.Second

func (x execution) order(ctx context.Context) order {
	o := order{Path: x.path, Argv: x.argv, Dir: x.dir, Env: x.env}
	if deadline, ok := ctx.Deadline(); ok {
		o.Time = max(time.Until(deadline), 0) + keeperSlack
	}
	return o
}

// A keeperProcess is the worker's side of a keeper.
type keeperProcess struct {
	cmd    *exec.Cmd
	mark   string
	orders *os.File      // to the keeper
	report *os.File      // from the keeper
	done   chan struct{} // closed when the keeper has ended and was waited for

	said report // valid when done is closed
	lost error  // why there is no report; nil: there is one
}

func (x execution) startKeeper(stdin io.Reader, stdout, stderr io.Writer) (*keeperProcess, error) {
	k := &keeperProcess{mark: x.mark, done: make(chan struct{})}
	theirOrders, theirReport, err := k.pipes()
	if err != nil {
		return nil, fmt.Errorf("the program cannot be started: %w", err)
	}
	defer closeAll(theirOrders, theirReport)
	// CommandContext is not used: it would kill the keeper, but not the family.
	k.cmd = exec.Command(ownProgram) //nolint:noctx // see above
	k.cmd.Args = []string{keeperName}
	k.cmd.Env = []string{"GOMAXPROCS=1"}
	k.cmd.Stdin, k.cmd.Stdout, k.cmd.Stderr = stdin, stdout, stderr
	k.cmd.ExtraFiles = []*os.File{theirOrders, theirReport}
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals from a terminal are for the worker only
	k.cmd.WaitDelay = killTime
	if err := k.cmd.Start(); err != nil {
		closeAll(k.orders, k.report)
		return nil, fmt.Errorf("the program's keeper cannot be started: %w", err)
	}
	go k.wait()
	return k, nil
}

func (k *keeperProcess) pipes() (theirOrders, theirReport *os.File, err error) {
	if theirOrders, k.orders, err = os.Pipe(); err != nil {
		return nil, nil, err
	}
	if k.report, theirReport, err = os.Pipe(); err != nil {
		closeAll(theirOrders, k.orders)
		return nil, nil, err
	}
	return theirOrders, theirReport, nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// give sends the order. An error means that the keeper has ended, which wait
// reports.
func (k *keeperProcess) give(o order) { _ = json.NewEncoder(k.orders).Encode(o) }

func (k *keeperProcess) wait() {
	defer close(k.done)
	defer closeAll(k.orders, k.report)
	err := json.NewDecoder(io.LimitReader(k.report, maxReport)).Decode(&k.said)
	if err != nil { // the keeper is dead; the family is still running and holds the pipes open
		sweep(k.mark)
	}
	ended := k.cmd.Wait()
	if err != nil {
		k.lost = fmt.Errorf("the program's keeper was lost (%w)", cmp.Or(ended, err))
	}
}

func (k *keeperProcess) result(ctx context.Context) (exit, error) {
	switch {
	case (k.lost != nil || k.said.Killed) && ctx.Err() != nil:
		return exit{}, context.Cause(ctx)
	case k.lost != nil:
		return exit{}, fmt.Errorf("%w; what the program did, it may have done in part", k.lost)
	case k.said.Killed:
		return exit{}, errors.New("its time was up while this worker was stopped")
	case k.said.Error != "":
		return exit{}, errors.New("the program cannot be started: " + k.said.Error)
	}
	return k.said.exit, nil
}

// startProcess starts the program under a keeper, with these files.
func (x execution) startProcess(stdin, stdout, stderr *os.File) (*Process, error) {
	k, err := x.startKeeper(stdin, stdout, stderr)
	if err != nil {
		return nil, err
	}
	p := &Process{done: k.done, kill: func() { _ = k.orders.Close() }}
	p.ended = func() string {
		switch {
		case k.lost != nil:
			return "lost its keeper"
		case k.said.Error != "":
			return "cannot be started: " + k.said.Error
		case k.said.Killed:
			return "was ended"
		}
		return k.said.String()
	}
	k.give(x.order(context.Background()))
	return p, nil
}
