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

// A keeper is a process that starts one program and outlives all of its family.
// It is the worker's own program, run again: keep takes it over before main.
//
// It is a child subreaper: whoever in the family loses its parent becomes a
// child of the keeper, whatever session, group and environment it has given
// itself. So the family is always the tree under the keeper, and it is gone
// when the keeper has no child left. Two pipes lead to the worker. By one come
// the orders, and when that ends, because the worker says so or is dead, the
// family is killed. By the other goes the report.
const (
	keeperName = "turnkeeper-program-keeper"
	ownProgram = "/proc/self/exe"
	ordersFD   = 3
	reportFD   = 4
	maxReport  = 64 << 10 // bytes
)

// An order is what a keeper is to run.
type order struct {
	Path string
	Argv []string
	Dir  string
	Env  []string
	Time time.Duration // after which the family is killed; 0: never
}

// A report is how that ended.
type report struct {
	ending
	Killed bool   // before it ended by itself
	Error  string // why it could not be started
}

func init() {
	if len(os.Args) == 1 && os.Args[0] == keeperName {
		os.Exit(keep())
	}
}

const prSetChildSubreaper = 36 // of prctl

// keep is the whole life of a keeper. It stays on the process's first thread,
// as everything does before main: with that thread the program's
// parent-death signal is bound to the keeper's life. The program can neither read
// the keeper's pipes and memory nor gets any file but its first three.
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
		return 1 // the worker is gone already, and nothing has begun
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

// start starts the program. Should the keeper be killed, the kernel kills at
// least the program itself.
func (o order) start() (pid int, err error) {
	return syscall.ForkExec(o.Path, o.Argv, &syscall.ProcAttr{
		Dir: o.Dir, Env: o.Env, Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
}

// letGo leaves the program's pipes to the family alone, so that they end with
// it.
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
		return 1 // nobody is left to be told
	}
	return 0
}

type keeper struct {
	program int
	ended   atomic.Bool // the program has
	over    atomic.Bool // the family is being killed
	killed  atomic.Bool // the program was running when that began
}

// heed kills the family when the worker lets go of the orders, or the time is
// over.
func (k *keeper) heed(orders io.Reader, after time.Duration) {
	if after > 0 {
		time.AfterFunc(after, k.end)
	}
	_, _ = io.Copy(io.Discard, orders)
	k.end()
}

// reap clears away whoever of the family ends, until nobody is left.
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
		go k.end() // what it leaves behind ends with it
	}
}

// giveUp is how long a keeper tries to kill what does not die.
const giveUp = time.Minute

// end kills the family. The process ends meanwhile, when reap has seen the last
// of it.
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
