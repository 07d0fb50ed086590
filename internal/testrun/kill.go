package testrun

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// killAll kills every process of the folder until none is left. Postgres gets some time to remove
// its shared memory, which outlives a kill. Guards of test processes in the folder get time to clean
// up: under make test, the folders of all packages are in the server's.
func killAll(root string) {
	const patience, pause = 30 * time.Second, 20 * time.Millisecond
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for start := time.Now(); time.Since(start) < patience; <-tick.C {
		left := processesOf(root)
		if len(left) == 0 {
			return
		}
		early := time.Since(start) < patience/3
		for _, p := range left {
			switch {
			case p.guard && early:
			case p.postgres && early:
				_ = syscall.Kill(p.pid, syscall.SIGQUIT) // an immediate stop
			default:
				_ = syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
	}
}

// A process is a process of the folder of a test run.
type process struct {
	pid      int
	postgres bool
	guard    bool
}

// processesOf returns the processes of a folder, except this one.
func processesOf(root string) []process {
	entries, err := os.ReadDir("/proc")
	if err != nil || !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "self" }) {
		return listedProcesses(root)
	}
	var found []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		cwd, _ := os.Readlink(filepath.Join(dir, "cwd"))
		exe, _ := os.Readlink(filepath.Join(dir, "exe"))
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if mentions(root, cwd, exe, string(args), string(env)) {
			found = append(found, process{pid, strings.HasSuffix(exe, "/postgres"), strings.HasPrefix(string(env),
				guardVariable+"=")})
		}
	}
	return found
}

// listedProcesses is processesOf for systems without /proc. It only looks at arguments.
func listedProcesses(root string) (found []process) {
	out, err := exec.Command("ps", "-axwwo", "pid=,command=").Output()
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(out)) {
		id, command, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pid, err := strconv.Atoi(id); err == nil && pid != os.Getpid() && mentions(root, command) {
			found = append(found, process{pid: pid, postgres: strings.Contains(command, "postgres")})
		}
	}
	return found
}

// mentions reports whether a text contains the path of the folder, or a path in it.
func mentions(root string, texts ...string) bool {
	for _, text := range texts {
		for rest := text; ; {
			_, after, found := strings.Cut(rest, root)
			if !found {
				break
			}
			if after == "" || strings.ContainsAny(after[:1], "/\x00 :\"'\n") {
				return true
			}
			rest = after
		}
	}
	return false
}
