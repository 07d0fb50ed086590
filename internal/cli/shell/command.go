package shell

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Command returns what a user types to run a program: its name if it is in
// PATH, else its path next to the running program.
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

// commandBeside returns the path of name in the folder of self, absolute or
// relative, whichever is shorter. It returns name if there is no such file.
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
