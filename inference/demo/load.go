package demo

import (
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

// Scripts holds the scripts of a folder by name. It is immutable; a reload makes a new one.
// Nil is empty.
type Scripts map[string]*Script

// Load reads all scripts of a folder: the files NAME.demo.yaml. It follows links, and ignores
// hidden files and subfolders. If the folder does not exist, there are none.
//
// The error joins all faults of all files. A script with a fault is nil in the result, because
// its name is known.
func Load(dir string) (Scripts, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot read the demo scripts of the folder %s: %w", dir, err)
	}
	scripts, errs := Scripts{}, []error(nil)
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), Extension); ok && name != "" && name[0] != '.' &&
			!entry.IsDir() {
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
	// more than is accepted, even with a byte order mark
	source, err := io.ReadAll(io.LimitReader(file, strictyaml.MaxBytes+4))
	if err != nil {
		return nil, unreadable(err)
	}
	return ParseScript(path, source)
}

// Check returns an error if there is no script for a model of this provider. dir is the folder
// of the scripts, for the message.
func (s Scripts) Check(model, dir string) error {
	if _, known := s[model]; known || model == Model {
		return nil
	}
	if !nameForm.MatchString(model) {
		return fmt.Errorf(
			"the model %q does not name a demo script: a script's name is at most 63 of a-z, 0-9, _ and -",
			Name+"/"+model)
	}
	existing := strings.Join(append([]string{Model}, slices.Sorted(maps.Keys(s))...), ", ")
	return fmt.Errorf("the model %q wants the demo script %s, which does not exist; there are: %s",
		Name+"/"+model, filepath.Join(dir, model+Extension), existing)
}
