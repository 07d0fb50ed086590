package program

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// killUnder kills every process under root. It stops them all before it kills
// the first: a stopped process starts no others, so the tree cannot grow while
// it is walked. Without /proc it kills only the process group.
func killUnder(root, group int) {
	stopped := map[int]bool{}
	for {
		tree, ok := under(root)
		if !ok {
			_ = syscall.Kill(-group, syscall.SIGKILL)
			return
		}
		more := false
		for _, pid := range tree {
			if !stopped[pid] {
				more, stopped[pid] = true, true
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
		}
		if more {
			continue
		}
		for _, pid := range tree {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return
	}
}

// under returns the processes under root that have not ended. ok is false if
// /proc cannot be read.
func under(root int) (pids []int, ok bool) {
	children := map[int][]int{}
	found := false
	for pid := range processes() {
		parent, state, ok := statOf(pid)
		found = found || ok
		if ok && state != 'Z' && state != 'X' {
			children[parent] = append(children[parent], pid)
		}
	}
	for next := []int{root}; len(next) > 0; next = next[1:] {
		pids = append(pids, children[next[0]]...)
		next = append(next, children[next[0]]...)
	}
	return pids, found
}

// processes iterates over the processes in /proc.
func processes() func(yield func(int) bool) {
	return func(yield func(int) bool) {
		dir, err := os.Open("/proc")
		if err != nil {
			return
		}
		defer func() { _ = dir.Close() }()
		names, _ := dir.Readdirnames(-1) // after an error, the names read before it are used
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil && !yield(pid) {
				return
			}
		}
	}
}

// statOf returns the parent and the state of a process.
func statOf(pid int) (parent int, state byte, ok bool) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, 0, false
	}
	// The name is in parentheses and may itself contain parentheses.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0, 0, false
	}
	parent, err = strconv.Atoi(fields[1])
	return parent, fields[0][0], err == nil
}

// sweep kills the processes with the mark in their environment. It is for a
// family that has lost its keeper.
func sweep(mark string) {
	for start := time.Now(); time.Since(start) < killTime; {
		marked := bearing(mark)
		if len(marked) == 0 {
			return
		}
		for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			for _, pid := range marked {
				_ = syscall.Kill(pid, signal)
			}
		}
		<-time.After(time.Millisecond)
	}
}

func bearing(mark string) (pids []int) {
	variable := []byte(EnvFamily + "=" + mark)
	for pid := range processes() {
		env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
		if err == nil && slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool {
			return bytes.Equal(v, variable)
		}) {
			pids = append(pids, pid)
		}
	}
	return pids
}
