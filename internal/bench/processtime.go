package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc/PID/stat. It is the same on all Linux systems.
const tick = 10 * time.Millisecond

// haveProc reports whether this system has Linux's /proc, from which CPU times and memory are read.
func haveProc() bool {
	_, err := processStat(os.Getpid())
	return err == nil
}

// processStat returns the fields of /proc/PID/stat after the name: state, parent, and so on.
func processStat(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	_, after, found := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	if !found || len(fields) < 15 {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	return fields, nil
}

// Positions in the fields of processStat.
const (
	statParent       = 1
	statUser         = 11 // followed by the system time, and by both of the children that have ended
	statChildrenUser = 13
)

// ticks sums two neighbouring fields of CPU time.
func ticks(fields []string, first int) time.Duration {
	user, _ := strconv.ParseInt(fields[first], 10, 64)
	system, _ := strconv.ParseInt(fields[first+1], 10, 64)
	return time.Duration(user+system) * tick
}

// cpuTime returns the CPU time that a process has used: of its threads in nanoseconds, or in ticks if the
// kernel does not count these. A process that has ended has 0.
func cpuTime(pid int) time.Duration {
	var sum time.Duration
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		on, _, _ := strings.Cut(string(text), " ")
		n, _ := strconv.ParseInt(on, 10, 64)
		sum += time.Duration(n)
	}
	if len(threads) > 0 {
		return sum
	}
	if fields, err := processStat(pid); err == nil {
		return ticks(fields, statUser)
	}
	return 0
}

// treeTime returns the CPU time of a process, its children and those that have ended.
func treeTime(pid int) time.Duration {
	fields, err := processStat(pid)
	if err != nil {
		return 0
	}
	sum := cpuTime(pid) + ticks(fields, statChildrenUser)
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, entry := range entries {
		child, _ := strconv.Atoi(filepath.Base(entry))
		if fields, err := processStat(child); err == nil && fields[statParent] == strconv.Itoa(pid) {
			sum += cpuTime(child)
		}
	}
	return sum
}

// memoryOf returns the resident memory of a process. Without /proc it is zero.
func memoryOf(pid int) (m Memory) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return m
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kb, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "RssAnon:":
			m.Anonymous = kb << 10
		case "RssFile:":
			m.File = kb << 10
		}
	}
	return m
}

// A Memory is the resident memory of a process in bytes.
type Memory struct {
	Anonymous int64 `json:"anonymous_bytes"`
	File      int64 `json:"file_bytes"` // pages of files, such as the program
}

func (m Memory) orMore(other Memory) Memory {
	return Memory{Anonymous: max(m.Anonymous, other.Anonymous), File: max(m.File, other.File)}
}

// memoryEvery is how often memory is read to find its peak.
const memoryEvery = 20 * time.Millisecond

// watchMemory reads the memory of a process until stop is called, which returns the peak.
func watchMemory(pid int) (stop func() Memory) {
	quit, peak := make(chan struct{}), make(chan Memory)
	go func() {
		every := time.NewTicker(memoryEvery)
		defer every.Stop()
		highest := memoryOf(pid)
		for {
			select {
			case <-every.C:
				highest = highest.orMore(memoryOf(pid))
			case <-quit:
				peak <- highest.orMore(memoryOf(pid))
				return
			}
		}
	}()
	return func() Memory { close(quit); return <-peak }
}
