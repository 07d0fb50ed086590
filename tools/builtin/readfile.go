package builtin

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path"
	"syscall"
	"unicode/utf8"

	"turnkeeper/internal/redact"
	"turnkeeper/tools"
)

// sniffBytes is how many bytes at the beginning of a file are searched for a NUL,
// which marks it as binary.
const sniffBytes = 8000

func readFile(ctx context.Context, call tools.Call, root *os.Root, args readFileArgs) (tools.Result, error) {
	if args.Offset < 0 || args.Limit < 0 {
		return tools.Result{}, fmt.Errorf("offset and limit must not be negative")
	}
	name, err := localPath(args.Path)
	if err != nil {
		return tools.Result{}, err
	}
	file, size, err := openRegular(root, name)
	if err != nil {
		return tools.Result{}, err
	}
	defer func() { _ = file.Close() }()
	length, err := span(args, size)
	if err != nil {
		return tools.Result{}, err
	}
	part := part{from: args.Offset, to: args.Offset + length}
	if err := part.read(ctx, file, size); err != nil {
		return tools.Result{}, pathError(args.Path, err)
	}
	if binary, err := isBinary(file, part.bytes()); err != nil {
		return tools.Result{}, pathError(args.Path, err)
	} else if binary {
		return tools.Result{Bytes: part.bytes(), MediaType: mediaTypeOf(name, part.bytes())}, nil
	}
	return tools.Result{Text: part.text(call)}, nil
}

// A part of a file, from one byte up to another.
type part struct {
	from, to int64
	content  []byte // of the part, and up to redact.Margin bytes more at each end
	before   int    // number of extra bytes at the beginning
}

// maxOverlap is how many bytes of a character can lie outside the part in which it begins or ends.
const maxOverlap = utf8.UTFMax - 1

func (p *part) read(ctx context.Context, file io.ReaderAt, size int64) (err error) {
	p.before = int(min(p.from, redact.Margin))
	begin := p.from - int64(p.before)
	length := min(p.to+redact.Margin, size) - begin
	p.content, err = io.ReadAll(contextReader{ctx, io.NewSectionReader(file, begin, length)})
	p.to = min(p.to, begin+int64(len(p.content))) // the file may have become shorter
	p.before = min(p.before, len(p.content))
	return err
}

// end returns the index in content where the part ends.
func (p *part) end() int { return max(p.before+int(p.to-p.from), p.before) }

func (p *part) bytes() []byte { return p.content[p.before:p.end():p.end()] }

// text returns the characters that begin in the part, so adjacent parts make up the
// whole text wherever it is cut. Secrets are masked.
func (p *part) text(call tools.Call) string {
	return call.Part(string(p.content), p.border(p.before), p.border(p.end()))
}

// border returns the index of the first character that begins at or after at.
func (p *part) border(at int) int {
	for i := at - 1; i >= max(at-maxOverlap, 0); i-- {
		if !utf8.RuneStart(p.content[i]) {
			continue
		}
		if _, n := utf8.DecodeRune(p.content[i:]); i+n > at {
			return i + n
		}
		break
	}
	return at
}

// openRegular opens a regular file for reading. It checks the type before it opens,
// because opening a device may have an effect, and opens without blocking, because
// opening a pipe waits.
func openRegular(root *os.Root, name string) (*os.File, int64, error) {
	info, err := root.Stat(name)
	if err == nil {
		err = mustBeRegular(name, info)
	} else {
		err = pathError(name, err)
	}
	if err != nil {
		return nil, 0, err
	}
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, pathError(name, err)
	}
	info, err = file.Stat()
	if err == nil {
		err = mustBeRegular(name, info)
	}
	if err != nil {
		_ = file.Close()
		return nil, 0, err
	}
	return file, info.Size(), nil
}

func mustBeRegular(name string, info os.FileInfo) error {
	switch {
	case info.Mode().IsRegular():
		return nil
	case info.IsDir():
		return fmt.Errorf("%q is a folder; use list_files", name)
	}
	return fmt.Errorf("%q is %s; only regular files can be read", name, kind(info.Mode()))
}

// span returns the number of bytes to read.
func span(args readFileArgs, size int64) (int64, error) {
	if args.Offset > size {
		return 0, fmt.Errorf("offset %d is past the end: %q has %d bytes", args.Offset, args.Path, size)
	}
	length := size - args.Offset
	if args.Limit > 0 {
		length = min(length, args.Limit)
	}
	limit := int64(MaxReadBytes)
	if args.Offset+length < size {
		limit -= maxOverlap // for the rest of the last character
	}
	if length > limit {
		return 0,
			fmt.Errorf(
				"%q is too large to be read at once: it has %d bytes; use offset and limit, with a limit of at most %d",
				args.Path, size, MaxReadBytes-maxOverlap)
	}
	return length, nil
}

// isBinary reports whether the first sniffBytes of the file or the content have a NUL.
func isBinary(file io.ReaderAt, content []byte) (bool, error) {
	head := make([]byte, sniffBytes)
	n, err := file.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return false, err
	}
	return bytes.IndexByte(head[:n], 0) >= 0 || bytes.IndexByte(content, 0) >= 0, nil
}

func mediaTypeOf(name string, content []byte) string {
	return cmp.Or(mime.TypeByExtension(path.Ext(name)), http.DetectContentType(content))
}

// A contextReader stops reading when its context ends.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
