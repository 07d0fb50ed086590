package builtin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"turnkeeper"
	"turnkeeper/tools"
)

type writeFileArgs struct {
	Path string `json:"path" jsonschema:"path of the file, relative to the root folder; its folder must exist"`
	Text string `json:"text" jsonschema:"the whole new content of the file. Written out, it may have 256 KiB with the other arguments; a stored result that is passed on may have 10 MB"`
}

// writeSpec has effect keyed: writing the same content again changes nothing. So a
// write whose worker was lost is repeated, and its outcome is never in doubt.
var writeSpec = tools.Spec{
	Name:        nameWriteFile,
	Description: "Writes a text file of the root folder, in place of what it held. The file is replaced as a whole: nobody sees half of it.",
	Effect:      turnkeeper.EffectKeyed,
}

func (f files) write(ctx context.Context, call tools.Call, args writeFileArgs) (tools.Result, error) {
	if len(args.Text) > MaxWriteBytes {
		return tools.Result{}, fmt.Errorf("the text has %d bytes; at most %d can be written", len(args.Text),
			MaxWriteBytes)
	}
	name, err := localPath(args.Path)
	if err != nil {
		return tools.Result{}, err
	}
	root, err := f.open(call.Agent)
	if err != nil {
		return tools.Result{}, err
	}
	defer func() { _ = root.Close() }()
	if err := f.writeLabelled(ctx, root, call, name, args.Text); err != nil {
		return tools.Result{}, err
	}
	return tools.Result{Text: fmt.Sprintf("%q written, %d bytes.", args.Path, len(args.Text))}, nil
}

// writeLabelled writes a file, and keeps the labels of the call for it.
func (f files) writeLabelled(ctx context.Context, root *os.Root, call tools.Call, name, text string) error {
	mode, err := modeOf(root, name)
	if err != nil {
		return err
	}
	write := func() error { return writeFile(ctx, root, name, text, mode) }
	if f.labels == nil {
		return write()
	}
	folder, err := realPath(root, path.Dir(name))
	if err != nil {
		return writeError(name, err)
	}
	var failed error
	err = f.labels.WriteFile(ctx, call.Agent, filepath.Join(folder, path.Base(name)), call.Labels, func() error {
		failed = write()
		return failed
	})
	if err != nil && failed == nil {
		return &storeError{"the labels of the file could not be recorded; write it again", err}
	}
	return failed
}

const newFileMode fs.FileMode = 0o644

// writeFile writes the text to a temporary file in the same folder, syncs it and
// renames it to the file. A process that is killed may leave the temporary file.
func writeFile(ctx context.Context, root *os.Root, name, text string, mode fs.FileMode) error {
	beside := path.Join(path.Dir(name), ".write-"+rand.Text())
	if err := writeNew(root, beside, text, mode); err != nil {
		_ = root.Remove(beside)
		return writeError(name, err)
	}
	if err := context.Cause(ctx); err != nil {
		_ = root.Remove(beside)
		return err
	}
	if err := root.Rename(beside, name); err != nil {
		_ = root.Remove(beside)
		return writeError(name, err)
	}
	syncFolder(root, path.Dir(name))
	return nil
}

// modeOf returns the mode of the file, or newFileMode if it does not exist. It
// refuses anything but a regular file.
func modeOf(root *os.Root, name string) (fs.FileMode, error) {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return newFileMode, nil
	case err != nil:
		return 0, writeError(name, err)
	case info.IsDir():
		return 0, fmt.Errorf("%q is a folder; give the path of a file", name)
	case info.Mode()&fs.ModeSymlink != 0:
		return 0, fmt.Errorf("%q is a link; write to the file itself", name)
	case !info.Mode().IsRegular():
		return 0, fmt.Errorf("%q is %s; only regular files can be written", name, kind(info.Mode()))
	}
	return info.Mode().Perm(), mustBeWritable(root, name, info.Mode())
}

// mustBeWritable refuses a read-only file, which a rename would replace.
func mustBeWritable(root *os.Root, name string, mode fs.FileMode) error {
	readOnly := fmt.Errorf("%q is read-only and stays as it is; write to another file", name)
	if mode.Perm()&0o200 == 0 { // also for root, which may write to any file
		return readOnly
	}
	file, err := root.OpenFile(name, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) {
		return readOnly
	}
	if err != nil {
		return writeError(name, err)
	}
	return file.Close()
}

func writeNew(root *os.Root, name, text string, mode fs.FileMode) error {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
}

// syncFolder makes the rename durable, if the system supports it. It ignores errors.
func syncFolder(root *os.Root, name string) {
	if folder, err := root.Open(name); err == nil {
		_ = folder.Sync()
		_ = folder.Close()
	}
}

// writeError is like pathError, for a file that could not be written.
func writeError(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no folder %q", path.Dir(name))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%q may not be written: permission denied", name)
	case isOutside(err):
		return pathError(name, err)
	}
	return fmt.Errorf("%q cannot be written: %s", name, reason(err))
}
