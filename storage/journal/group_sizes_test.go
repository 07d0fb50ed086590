package journal_test

import (
	"errors"
	"fmt"
	"testing"

	"turnkeeper"
	"turnkeeper/internal/testrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/storage/storagetest"
)

// All writes that wait at once end, however many there are, and each is done once. One of them has lost its grant and
// fails alone, wherever it is.
func TestAnyNumberOfWritesEnds(t *testing.T) {
	h := newEnv(t)
	all := manyTurns(h, 130)
	wrote := map[*storagetest.Dispatch]int{}
	for _, n := range testrun.Sample([]int{65, 64, 66, 1, 129, 63, 127, 128, 130}, 2) {
		for _, fenced := range []int{-1, n - 1} {
			if fenced >= 0 {
				h.Exec("update turnkeeper.turns set worker_id = 'worker-2' where id = $1", all[fenced].Grant.TurnID)
			}
			b := &batch{env: h, turns: all[:n]}
			b.write(h.Journals, func(i int) turnlog.Entry {
				return turnlog.Entry{Round: storagetest.Round(wrote[all[i]] + 1)}
			})
			b.release()
			for i, d := range b.turns {
				err := b.result(i)
				if i == fenced {
					if !errors.Is(err, turnkeeper.ErrFenced) {
						t.Errorf("write %d of %d, whose grant is another worker's: %v", i, n, err)
					}
					continue
				}
				if err != nil {
					t.Errorf("write %d of %d: %v", i, n, err)
				}
				wrote[d]++
			}
			if fenced >= 0 {
				h.Exec("update turnkeeper.turns set worker_id = 'worker-1' where id = $1", all[fenced].Grant.TurnID)
			}
		}
	}
	for i, d := range all {
		if n := storagetest.One[int](h, "select count(*) from turnkeeper.rounds where turn_id = $1",
			d.Grant.TurnID); n != wrote[d] {
			t.Errorf("turn %d has %d rounds, and wrote %d", i, n, wrote[d])
		}
	}
}

// manyTurns returns n turns of desk.
func manyTurns(h *env, n int) (all []*storagetest.Dispatch) {
	for i := range n {
		h.Submit("desk", fmt.Sprint(i), "x")
	}
	for len(all) < n {
		all = append(all, h.Dispatch("worker-1")...) // a limited number
	}
	return all
}
