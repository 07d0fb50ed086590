package commit_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"turnkeeper"
	"turnkeeper/internal/commit"
)

var (
	errAway   = errors.New("the database is away")
	errKey    = errors.New("the key is taken")
	errBroken = errors.New("something else")
	errStop   = errors.New("the worker stops")
)

var grant = turnkeeper.Grant{TurnID: 7, Token: 3, GrantID: "grant", WorkerID: "worker"}

// A script is a fake database. It returns the next of its attempts for each attempt, and the next of
// its reads for each read.
type script struct {
	attempts []error
	reads    []func(*commit.Row) error
	asked    []string // the requests, "attempt" or "read", in order
	ids      []string // the write ids of the attempts
}

func (s *script) database() commit.Database {
	return commit.Database{
		ReadBack: func(context.Context) (commit.Row, error) {
			s.asked = append(s.asked, "read")
			if len(s.reads) == 0 {
				return commit.Row{}, errBroken
			}
			row := commit.Row{
				Token: grant.Token, GrantID: grant.GrantID, WorkerID: grant.WorkerID, State: turnkeeper.TurnRunning,
				Entries: 5,
			}
			read := s.reads[0]
			s.reads = s.reads[1:]
			err := read(&row)
			return row, err
		},
		Uncertain: func(err error) bool { return errors.Is(err, errAway) },
		KeyTaken:  func(err error) bool { return errors.Is(err, errKey) },
	}
}

func (s *script) write(ctx context.Context, w *commit.Writer, ends bool) error {
	return w.Write(ctx, s.database(), commit.Write{Entries: 2, Ends: ends, Attempt: func(_ context.Context,
		id string) error {
		s.asked, s.ids = append(s.asked, "attempt"), append(s.ids, id)
		if len(s.attempts) == 0 {
			return nil
		}
		err := s.attempts[0]
		s.attempts = s.attempts[1:]
		return err
	}})
}

func writer() *commit.Writer { return &commit.Writer{Grant: grant, Entries: 5} }

// unchanged is a read of the row before the current write.
func unchanged(*commit.Row) error { return nil }

// own is a read of the row after the current write.
func (s *script) own(row *commit.Row) error {
	row.Entries, row.WriteID = 7, s.ids[0]
	return nil
}

// TestSettle checks what a writer concludes from the turn's row after an attempt without an answer.
func TestSettle(t *testing.T) {
	others := map[string]func(*commit.Row){
		"an older token": func(r *commit.Row) { r.Token = grant.Token - 1 },
		"a newer token":  func(r *commit.Row) { r.Token = grant.Token + 1 },
		"another grant":  func(r *commit.Row) { r.GrantID = "other" },
		"another worker": func(r *commit.Row) { r.WorkerID = "other" },
		"nobody's grant": func(r *commit.Row) { r.WorkerID = "" },
		"a queued turn":  func(r *commit.Row) { r.State = turnkeeper.TurnQueued },
		"an ended turn":  func(r *commit.Row) { r.State = turnkeeper.TurnSucceeded },
	}
	type outcome struct {
		err  error
		done bool // the writer continues from its own write
		only bool // only one attempt was made
	}
	check := func(name string, ends bool, row func(*script, *commit.Row), want outcome) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{attempts: []error{errAway}}
				s.reads = []func(*commit.Row) error{func(r *commit.Row) error { row(s, r); return nil }}
				w := writer()
				if err := s.write(t.Context(), w, ends); !errors.Is(err, want.err) {
					t.Errorf("error %v, want %v", err, want.err)
				}
				if want.only != (len(s.ids) == 1) {
					t.Errorf("%v", s.asked)
				}
				if moved := w.Entries == 7; moved != want.done {
					t.Errorf("the writer is at %d", w.Entries)
				}
				if !want.done && w.Entries != 5 {
					t.Errorf("a write that is not done moved the writer to %d", w.Entries)
				}
			})
		})
	}
	for _, ends := range []bool{false, true} {
		kind := ", a step"
		if ends {
			kind = ", an end"
		}
		check("not done"+kind, ends, func(*script, *commit.Row) {}, outcome{done: true}) // the second attempt succeeds
		check("done"+kind, ends, func(s *script, r *commit.Row) { _ = s.own(r) }, outcome{done: true, only: true})
		check("another's write"+kind, ends, func(_ *script, r *commit.Row) { r.Entries, r.WriteID = 7, "other" },
			outcome{err: turnkeeper.ErrJournalMoved, only: true})
		check("done, with a write after it"+kind, ends, func(s *script, r *commit.Row) {
			_ = s.own(r)
			r.Entries++
		}, outcome{done: true, only: true})
		check("an unnamed write"+kind, ends, func(_ *script, r *commit.Row) { r.Entries++ },
			outcome{err: turnkeeper.ErrJournalMoved, only: true})
		for name, other := range others {
			check(name+kind, ends, func(_ *script, r *commit.Row) {
				other(r)
			}, outcome{err: turnkeeper.ErrFenced, only: true})
			own := outcome{err: turnkeeper.ErrFenced, only: true}
			if ends {
				own = outcome{done: true, only: true}
			}
			check(name+" after one's own write"+kind, ends, func(s *script, r *commit.Row) {
				_ = s.own(r)
				other(r)
			}, own)
		}
	}
}

// TestAttempts checks after which answers a writer returns, reads back or tries again.
func TestAttempts(t *testing.T) {
	for _, c := range []struct {
		name     string
		attempts []error
		reads    func(*script) []func(*commit.Row) error
		err      error
		asked    []string
	}{
		{"answered", nil, nil, nil, []string{"attempt"}},
		{"another fault", []error{errBroken}, nil, errBroken, []string{"attempt"}},
		{"refused at once", []error{turnkeeper.ErrFenced}, nil, turnkeeper.ErrFenced, []string{"attempt"}},
		{"moved at once", []error{turnkeeper.ErrJournalMoved}, nil, turnkeeper.ErrJournalMoved, []string{"attempt"}},
		{"the key is taken", []error{errKey}, nil, turnkeeper.ErrJournalMoved, []string{"attempt"}},
		{
			"its own echo", []error{errAway, turnkeeper.ErrJournalMoved},
			func(s *script) []func(*commit.Row) error { return []func(*commit.Row) error{unchanged, s.own} },
			nil, []string{"attempt", "read", "attempt", "read"},
		},
		{
			"moved, and nothing is on record", []error{errAway, turnkeeper.ErrJournalMoved},
			func(*script) []func(*commit.Row) error { return []func(*commit.Row) error{unchanged, unchanged} },
			turnkeeper.ErrJournalMoved, []string{"attempt", "read", "attempt", "read"},
		},
		{
			"refused, and nothing is on record", []error{errAway, turnkeeper.ErrFenced},
			func(*script) []func(*commit.Row) error { return []func(*commit.Row) error{unchanged, unchanged} },
			turnkeeper.ErrFenced, []string{"attempt", "read", "attempt", "read"},
		},
		{
			"another fault later", []error{errAway, errBroken},
			func(*script) []func(*commit.Row) error { return []func(*commit.Row) error{unchanged} },
			errBroken, []string{"attempt", "read", "attempt"},
		},
		{
			"the question fails", []error{errAway},
			func(*script) []func(*commit.Row) error { return nil },
			errBroken, []string{"attempt", "read"},
		},
		{
			"the question is not answered", []error{errAway},
			func(s *script) []func(*commit.Row) error {
				away := func(*commit.Row) error { return errAway }
				return []func(*commit.Row) error{away, away, s.own}
			},
			nil, []string{"attempt", "read", "read", "read"},
		},
		{
			"away for long", []error{errAway, errAway, errAway},
			func(*script) []func(*commit.Row) error {
				return []func(*commit.Row) error{unchanged, unchanged, unchanged}
			},
			nil, []string{"attempt", "read", "attempt", "read", "attempt", "read", "attempt"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{attempts: c.attempts}
				if c.reads != nil {
					s.reads = c.reads(s)
				}
				w := writer()
				if err := s.write(t.Context(), w, false); !errors.Is(err, c.err) {
					t.Errorf("error %v, want %v", err, c.err)
				}
				if !slices.Equal(s.asked, c.asked) {
					t.Errorf("%v, want %v", s.asked, c.asked)
				}
				if len(slices.Compact(s.ids)) != 1 {
					t.Errorf("the attempts have the ids %v, want one", s.ids)
				}
				if moved := w.Entries == 7; moved != (c.err == nil) {
					t.Errorf("the writer is at %d", w.Entries)
				}
			})
		})
	}
}

// TestEndOnTheWay ends the writer's ctx during a write. The writer still reads back whether the write
// was done, but no longer waits for an unavailable database.
func TestEndOnTheWay(t *testing.T) {
	for _, c := range []struct {
		name    string
		failing error // error of the attempt during which ctx ends; nil: the cause of ctx
		reads   func(*script) []func(*commit.Row) error
		err     error
		reading int
	}{
		{"done", nil, func(s *script) []func(*commit.Row) error { return []func(*commit.Row) error{s.own} }, nil, 1},
		{"done, by the context's own error", context.Canceled, func(s *script) []func(*commit.Row) error {
			return []func(*commit.Row) error{s.own}
		}, nil, 1},
		{"done, and the connection broke", errAway, func(s *script) []func(*commit.Row) error {
			return []func(*commit.Row) error{s.own}
		}, nil, 1},
		{"not done", nil, func(*script) []func(*commit.Row) error {
			return []func(*commit.Row) error{unchanged}
		}, errStop, 1},
		{"another fault", errBroken, nil, errBroken, 0},
		{"the question fails", nil, nil, errBroken, 1},
		{"the database stays away", nil, func(*script) []func(*commit.Row) error {
			return slices.Repeat([]func(*commit.Row) error{func(*commit.Row) error { return errAway }}, 100)
		}, errStop, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				s := &script{}
				began := time.Now()
				err := writer().Write(ctx, s.database(), commit.Write{Entries: 2, Attempt: func(_ context.Context,
					id string) error {
					s.asked, s.ids = append(s.asked, "attempt"), append(s.ids, id)
					if len(s.ids) > 1 {
						t.Fatal("a second attempt, though the time is over")
					}
					if c.reads != nil {
						s.reads = c.reads(s)
					}
					cancel(errStop)
					if c.failing != nil {
						return c.failing
					}
					return context.Cause(ctx)
				}})
				if !errors.Is(err, c.err) {
					t.Errorf("error %v, want %v", err, c.err)
				}
				if reads := len(s.asked) - 1; c.reading > 0 && reads != c.reading || errors.Is(c.failing,
					errBroken) && reads != 0 {
					t.Errorf("%v", s.asked)
				}
				if took := time.Since(began); took > 4*time.Second {
					t.Errorf("the end took %s", took)
				}
			})
		})
	}
}

// TestPatiently checks that f is retried after temporary errors only, with growing pauses.
func TestPatiently(t *testing.T) {
	passes := func(err error) bool { return errors.Is(err, errAway) }
	synctest.Test(t, func(t *testing.T) {
		var pauses []time.Duration
		noted := 0
		note := func(err error) {
			if !errors.Is(err, errAway) {
				t.Errorf("retrying after %v", err)
			}
			noted++
		}
		last := time.Now()
		err := commit.Patiently(t.Context(), passes, note, func() error {
			pauses = append(pauses, time.Since(last))
			last = time.Now()
			if len(pauses) < 8 {
				return errAway
			}
			return nil
		})
		const ms = time.Millisecond
		want := []time.Duration{0, 50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, time.Second, time.Second}
		if err != nil || !slices.Equal(pauses, want) {
			t.Errorf("error %v, pauses %v, want %v", err, pauses, want)
		}
		if noted != len(want)-1 {
			t.Errorf("%d failures were reported, want %d", noted, len(want)-1)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		if err := commit.Patiently(t.Context(), passes, nil, func() error {
			asked++
			return errBroken
		}); !errors.Is(err, errBroken) || asked != 1 {
			t.Errorf("error %v after %d questions", err, asked)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		asked := 0
		err := commit.Patiently(ctx, passes, nil, func() error {
			if asked++; asked == 3 {
				cancel(errStop)
			}
			return errAway
		})
		if asked != 3 || !errors.Is(err, errStop) || !errors.Is(err, errAway) {
			t.Errorf("error %v after %d questions", err, asked)
		}
	})
}

func TestBound(t *testing.T) {
	for _, c := range []struct {
		name  string
		taker turnkeeper.WorkerID
		err   error
		first bool
		want  error
	}{
		{"nobody had it", "", nil, true, nil},
		{"it was one's own", "worker", nil, false, nil},
		{"another has it", "other", nil, false, turnkeeper.ErrFenced},
		{"it is no longer the turn's", "", turnkeeper.ErrNotFound, false, turnkeeper.ErrFenced},
		{"the question failed", "", errBroken, false, errBroken},
	} {
		if first, err := commit.Bound(c.taker, "worker", c.err); first != c.first || !errors.Is(err, c.want) {
			t.Errorf("%s: first %t, error %v", c.name, first, err)
		}
	}
}
