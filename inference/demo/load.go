package demo

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"turnkeeper/internal/config/strictyaml"
)

// Scripts are the scripts of a folder by name. They never change; a reload
// makes new ones. Nil are none.
type Scripts map[string]*Script

// Load reads every script of a folder: files NAME.demo.yaml, links followed,
// hidden files and folders left out. A folder that does not exist has none.
//
// The error joins every fault of every file. A script with a fault is in the
// result as nil: its name is not unknown.
func Load(dir string) (Scripts, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the demo scripts of the folder %s cannot be read: %w", dir, err)
	}
	scripts, errs := Scripts{}, []error(nil)
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), Extension); ok && name != "" && name[0] != '.' && !entry.IsDir() {
			script, err := load(filepath.Join(dir, entry.Name()))
			scripts[name] = script
			errs = append(errs, err)
		}
	}
	return scripts, errors.Join(errs...)
}

func load(path string) (*Script, error) {
	unreadable := func(err error) error {
		if cause, ok := errors.AsType[*os.PathError](err); ok {
			err = cause.Err // the path is already named
		}
		return &strictyaml.Problem{Path: path, Text: fmt.Sprintf("the file cannot be read: %v", err)}
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, unreadable(err)
	case !info.Mode().IsRegular(): // opening a pipe would wait for its writer
		return nil, &strictyaml.Problem{Path: path, Text: "this is not a regular file"}
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, unreadable(err)
	}
	defer func() { _ = file.Close() }()
	source, err := io.ReadAll(io.LimitReader(file, strictyaml.MaxBytes+4)) // more than is accepted, whatever it begins with
	if err != nil {
		return nil, unreadable(err)
	}
	return ParseScript(path, source)
}

// Check says why no script answers for a model of this provider, or nil. dir
// is the folder of the scripts, for the message.
func (s Scripts) Check(model, dir string) error {
	if _, known := s[model]; known || model == Model {
		return nil
	}
	if !nameForm.MatchString(model) {
		return fmt.Errorf("the model %q is no demo script's: a script's name is at most 63 of a-z, 0-9, _ and -", Name+"/"+model)
	}
	there := strings.Join(append([]string{Model}, slices.Sorted(maps.Keys(s))...), ", ")
	return fmt.Errorf("the model %q wants the demo script %s, which does not exist; there are: %s",
		Name+"/"+model, filepath.Join(dir, cmp.Or(model, "NAME")+Extension), there)
}
