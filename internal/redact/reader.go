package redact

import "io"

// Reader returns a reader of the masked text of from. Close closes from if it is an io.Closer.
func (m *Masker) Reader(from io.Reader) io.Reader {
	return &reader{from: from, stream: m.Stream()}
}

type reader struct {
	from   io.Reader
	stream *Stream
	ready  string // masked and not yet returned
	err    error  // of from, returned when ready is empty
}

func (r *reader) Read(p []byte) (int, error) {
	if r.ready == "" && r.err == nil && len(p) > 0 {
		n, err := r.from.Read(p)
		if n < 0 || n > len(p) {
			return n, err // an invalid count, which the caller reports
		}
		r.ready, r.err = r.stream.Write(string(p[:n])), err
		if err != nil {
			r.ready += r.stream.Flush()
		}
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	if r.ready == "" {
		return n, r.err
	}
	return n, nil
}

func (r *reader) Close() error {
	if c, ok := r.from.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
