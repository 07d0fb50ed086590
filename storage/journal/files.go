package journal

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"turnkeeper"
	"turnkeeper/policy"
	"turnkeeper/storage"
	"turnkeeper/storage/internal/dbsqlc"
	"turnkeeper/storage/internal/pg"
)

// Files keeps the labels of the files that agents write. It is safe for concurrent use.
type Files struct{ db *pg.DB }

// NewFiles returns the Files of an open database.
func NewFiles(db *storage.DB) Files { return Files{db.Core()} }

// WriteFile runs write, which writes a file, and keeps the labels of the new content in place of those of the old one.
// path is the file's absolute path without links. While the file is written it has the labels of both, so a reader on
// any worker sees no content without its labels, whenever a worker is lost. Writers of a labelled file wait for each
// other.
func (s Files) WriteFile(ctx context.Context, agent, path string, labels []policy.Mark, write func() error) error {
	f := labelledFile{path: s.db.Clean(path), agent: agent, labels: []string{}, sources: []string{}}
	for _, m := range policy.Join(labels) {
		f.labels, f.sources = append(f.labels, string(m.Label)), append(f.sources, s.db.Clean(m.Source))
	}
	for {
		labelled, err := s.db.Q.LabelFile(ctx, f.path, f.agent, f.labels, f.sources)
		switch {
		case err != nil:
			return pg.Translate(err)
		case !labelled: // neither before nor after
			return write()
		}
		if err := s.writeLocked(ctx, f, write); !errors.Is(err, errRelabelled) {
			return err
		}
	}
}

// errRelabelled means that another writer has removed the labels of a file before it could be locked.
var errRelabelled = errors.New("the labels of the file have changed")

// A labelledFile is a file with the labels of its new content.
type labelledFile struct {
	path, agent     string
	labels, sources []string
}

func (s Files) writeLocked(ctx context.Context, f labelledFile, write func() error) error {
	var failed error // of write; the labels of both contents then remain
	err := pgx.BeginFunc(ctx, s.db.Pool, func(tx pgx.Tx) error {
		q := dbsqlc.New(tx)
		if _, err := q.LockFile(ctx, f.path); errors.Is(pg.Translate(err), turnkeeper.ErrNotFound) {
			return errRelabelled
		} else if err != nil {
			return err
		}
		known, err := q.FileLabels(ctx, f.path)
		if err != nil {
			return err
		}
		for _, label := range f.labels {
			if !slices.ContainsFunc(known, func(r dbsqlc.FileLabelsRow) bool { return r.Label == label }) {
				return errRelabelled
			}
		}
		if failed = write(); failed != nil {
			return failed
		}
		return q.RelabelFile(ctx, f.path, f.agent, f.labels, f.sources)
	})
	if failed != nil || errors.Is(err, errRelabelled) {
		return err
	}
	return pg.Translate(err)
}

// FileLabels returns the labels of a file, or of all files below a folder. The path of a folder ends with a slash.
func (s Files) FileLabels(ctx context.Context, path string) (all []policy.Mark, err error) {
	rows, err := s.db.Q.FileLabels(ctx, s.db.Clean(path))
	for _, r := range rows {
		all = append(all, policy.Mark{Label: policy.Label(r.Label), Source: r.Source})
	}
	return all, pg.Translate(err)
}
