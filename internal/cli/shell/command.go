package shell

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Command is how a person here types one of the programs: its name where the
// shell finds it, else the path of the one beside the program that runs.
func Command(name string) string {
	if _, err := exec.LookPath(name); err == nil {
		return name
	}
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return commandBeside(self, name)
}

// commandBeside is the path of name in the folder of self, the shorter of the
// absolute and the relative one; the bare name if it is not there.
func commandBeside(self, name string) string {
	path := filepath.Join(filepath.Dir(self), name)
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return name
	}
	here, err := os.Getwd()
	if err != nil {
		return path
	}
	relative, err := filepath.Rel(here, path)
	if err != nil || len(relative) > len(path) {
		return path
	}
	if !strings.ContainsRune(relative, filepath.Separator) {
		return "./" + relative
	}
	return relative
}
