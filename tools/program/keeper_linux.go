package program

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"turnkeeper/internal/procguard"
)

// A keeper is a process that starts one program and outlives the program's
// family. It is the worker's own executable, started again: an init function
// calls keep before main.
//
// It is a child subreaper: a process of the family that loses its parent
// becomes a child of the keeper, whatever session, group and environment it
// has. So the family is always the tree under the keeper, and it has ended when
// the keeper has no child left. Two pipes connect the keeper to the worker. It
// reads the order from one; when that pipe is closed, because the worker wants
// the program to end or is dead, it kills the family. It writes the report to
// the other.
const (
	keeperName = "turnkeeper-program-keeper"
	ownProgram = "/proc/self/exe"
	ordersFD   = 3
	reportFD   = 4
	maxReport  = 64 << 10 // bytes
)

// An order is the program for a keeper to run.
type order struct {
	Path string
	Argv []string
	Dir  string
	Env  []string
	Time time.Duration // until the family is killed; 0: never
}

// A report says how the program ended.
type report struct {
	exit
	Killed bool   // killed before it ended by itself
	Error  string // why it could not be started
}

func init() {
	if len(os.Args) == 1 && os.Args[0] == keeperName {
		os.Exit(keep())
	}
}

const prSetChildSubreaper = 36 // of prctl

// keep is the main function of a keeper. Like everything before main, it stays
// on the process's first thread: the kernel binds the program's parent-death
// signal to the thread that started it, so this binds it to the keeper's life.
// The program cannot read the keeper's pipes and memory, and inherits only its
// first three files.
func keep() int {
	if err := errors.Join(procguard.Hide(), procguard.KeepFiles()); err != nil {
		return tell(report{Error: err.Error()})
	}
	orders := os.NewFile(ordersFD, "orders")
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); errno != 0 {
		return tell(report{Error: "prctl: " + errno.Error()})
	}
	var o order
	input := json.NewDecoder(orders)
	if err := input.Decode(&o); err != nil {
		return 1 // the worker is gone, and nothing was started
	}
	program, err := o.start()
	if err != nil {
		return tell(report{Error: err.Error()})
	}
	letGo()
	k := &keeper{program: program}
	go k.heed(orders, o.Time)
	return tell(k.reap())
}

// start starts the program. If the keeper is killed, the kernel kills at least
// the program itself.
func (o order) start() (pid int, err error) {
	return syscall.ForkExec(o.Path, o.Argv, &syscall.ProcAttr{
		Dir: o.Dir, Env: o.Env, Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
}

// letGo closes the keeper's copies of the program's pipes, so they close when
// the family ends.
func letGo() {
	null, err := syscall.Open(os.DevNull, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	for fd := range 3 {
		if err != nil || syscall.Dup3(null, fd, 0) != nil {
			_ = syscall.Close(fd)
		}
	}
}

func tell(r report) int {
	out := os.NewFile(reportFD, "report")
	if err := json.NewEncoder(out).Encode(r); err != nil {
		return 1 // the worker is gone
	}
	return 0
}

type keeper struct {
	program int
	ended   atomic.Bool // whether the program has ended
	over    atomic.Bool // whether the family is being killed
	killed  atomic.Bool // whether the program was running when that began
}

// heed kills the family when the worker closes the orders, or after the given
// time unless that is 0.
func (k *keeper) heed(orders io.Reader, after time.Duration) {
	if after > 0 {
		time.AfterFunc(after, k.end)
	}
	_, _ = io.Copy(io.Discard, orders)
	k.end()
}

// reap waits for the processes of the family until none is left.
func (k *keeper) reap() report {
	var r report
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil: // no child is left
			r.Killed = k.killed.Load()
			return r
		case pid != k.program:
			continue
		}
		r.Code = status.ExitStatus()
		if status.Signaled() {
			r.Code, r.Signal = 0, status.Signal().String()
		}
		k.ended.Store(true)
		go k.end() // kills what the program left behind
	}
}

// giveUp is how long a keeper tries to kill processes that do not end.
const giveUp = time.Minute

// end kills the family. The keeper itself exits when reap has waited for the
// last process, or after giveUp.
func (k *keeper) end() {
	if !k.over.CompareAndSwap(false, true) {
		return
	}
	k.killed.Store(!k.ended.Load())
	start := time.Now()
	for pause := time.Millisecond; time.Since(start) < giveUp; pause = min(2*pause, 100*time.Millisecond) {
		killUnder(os.Getpid(), k.program)
		<-time.After(pause)
	}
	os.Exit(1)
}
