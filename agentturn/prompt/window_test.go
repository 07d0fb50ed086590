package prompt

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRoom(t *testing.T) {
	tests := []struct {
		name                 string
		window, answer, want int
	}{
		{"defaults", 0, 0, 32768 - 4096 - 1638},
		{"own figures", 100_000, 10_000, 85_000},
		{"an answer takes at most half", 1000, 4096, 450},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := Room(test.window, test.answer); got != test.want {
				t.Errorf("room %d, want %d", got, test.want)
			}
		})
	}
}

func TestFit(t *testing.T) {
	results := func(whole ...int) []resultLoad {
		var loads []resultLoad
		for _, n := range whole {
			loads = append(loads, resultLoad{whole: n, line: 5})
		}
		return loads
	}
	whole := func(tokens ...int) []pastLoad {
		var loads []pastLoad
		for _, n := range tokens {
			loads = append(loads, pastLoad{n, n})
		}
		return loads
	}
	none := [][]bool{}
	tests := []struct {
		name string
		room int
		load load
		want fitting
		ok   bool
	}{
		{"nothing but the message", 100, load{fixed: 100}, fitting{tokens: 100, dropped: none}, true},
		{"one too many", 99, load{fixed: 100}, fitting{tokens: 100, dropped: none}, false},
		{"all of the past", 100, load{fixed: 40, past: whole(10, 20, 30)}, fitting{tokens: 100, history: 60,
			dropped: none}, true},
		{"the newest of the past", 99, load{fixed: 40, past: whole(10, 20, 30)}, fitting{firstPast: 2, firstWhole: 2,
			tokens: 70, history: 30, dropped: none}, true},
		{"without a gap", 80, load{fixed: 40, past: whole(5, 50, 30)}, fitting{firstPast: 2, firstWhole: 2, tokens: 70,
			history: 30, dropped: none}, true},
		{"none of the past", 60, load{fixed: 40, past: whole(10, 30)}, fitting{firstPast: 2, firstWhole: 2, tokens: 40,
			dropped: none}, true},
		{"results of the past before its turns", 99, load{fixed: 40, past: []pastLoad{{30, 5}, {30, 5}}},
			fitting{firstWhole: 2, tokens: 50, history: 10, dropped: none}, true},
		{"and of all of it", 59, load{fixed: 40, past: []pastLoad{{30, 5}, {30, 5}}},
			fitting{firstPast: 1, firstWhole: 2, tokens: 45, history: 5, dropped: none}, true},
		{"an old turn that goes gives room to results", 99,
			load{fixed: 40, past: []pastLoad{{60, 60}, {30, 5}, {20, 5}}},
			fitting{firstPast: 1, firstWhole: 2, tokens: 65, history: 25, dropped: none}, true},
		{"a note on what is left out", 99, load{fixed: 40, note: 4, past: whole(10, 20, 30)},
			fitting{firstPast: 2, firstWhole: 2, noted: true, tokens: 74, history: 34, dropped: none}, true},
		{"for that another turn goes", 92, load{fixed: 40, note: 4, past: whole(10, 20, 30)},
			fitting{firstPast: 2, firstWhole: 2, noted: true, tokens: 74, history: 34, dropped: none}, true},
		{"unless there is no room for it", 42, load{fixed: 40, note: 4, past: whole(10, 20, 30)},
			fitting{firstPast: 3, firstWhole: 3, tokens: 40, dropped: none}, true},
		{"a note on turns that were not even read", 100, load{fixed: 40, note: 4, older: true, past: whole(10)},
			fitting{noted: true, tokens: 54, history: 14, dropped: none}, true},
		{"this turn before the past", 100, load{fixed: 40, past: whole(10), rounds: []roundLoad{{10, results(45)}}},
			fitting{firstPast: 1, firstWhole: 1, turn: 55, tokens: 95, dropped: [][]bool{{false}}}, true},
		{"oldest results first", 99, load{fixed: 40, rounds: []roundLoad{{5, results(20, 20)}, {5, results(20, 20)}}},
			fitting{turn: 45, tokens: 85, dropped: [][]bool{{true, true}, {true, false}}}, true},
		{"what makes room lets the past in", 100, load{fixed: 40, past: whole(10),
			rounds: []roundLoad{{5, results(60)}}},
			fitting{turn: 10, tokens: 60, history: 10, dropped: [][]bool{{true}}}, true},
		{"a short result stays", 60, load{fixed: 40, rounds: []roundLoad{{5, results(3, 30)}}},
			fitting{turn: 13, tokens: 53, dropped: [][]bool{{false, true}}}, true},
		{"answers never go", 60, load{fixed: 40, past: whole(1), rounds: []roundLoad{{30, results(10)}}},
			fitting{firstPast: 1, firstWhole: 1, turn: 35, tokens: 75, dropped: [][]bool{{true}}}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, ok := fit(test.room, test.load)
			if ok != test.ok {
				t.Errorf("fits: %v, want %v", ok, test.ok)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(fitting{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestFitKeepsItsRules checks, for random loads, that the computed size is correct and at
// most the room, that the oldest parts are dropped, that nothing is dropped if all has room, and that otherwise half of
// the room beside the fixed parts stays free, unless the parts that may not be dropped need more.
func TestFitKeepsItsRules(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		l, room := randomLoad(random), random.IntN(600)
		f, ok := fit(room, l)
		sum := l.fixed
		alone := l.fixed // this turn with all its results
		var gaveWay, stayed bool
		for i, round := range l.rounds {
			sum += round.answer
			alone += round.answer
			for j, result := range round.results {
				alone += result.whole
				if f.dropped[i][j] {
					sum += result.line
					gaveWay = true
					if stayed {
						t.Fatalf("a result gave way after one that stayed: %+v of %+v", f, l)
					}
					continue
				}
				sum += result.whole
				stayed = stayed || result.line < result.whole
			}
		}
		if !ok {
			if sum <= room || stayed {
				t.Fatalf("%d of %d do not fit, and a result stays: %+v of %+v", sum, room, f, l)
			}
			continue
		}
		own, whole := sum, alone
		for i, past := range l.past {
			whole += past.whole
			switch {
			case i < f.firstPast:
			case i < f.firstWhole:
				sum += past.lean
			default:
				sum += past.whole
			}
		}
		if f.noted {
			sum += l.note
		}
		if sum != f.tokens || sum > room || f.firstWhole < f.firstPast {
			t.Fatalf("it takes %d of %d: %+v of %+v", sum, room, f, l)
		}
		switch left := gaveWay || f.firstWhole > 0 || f.firstPast > 0; {
		case left && whole+l.note <= room:
			t.Fatalf("parts gave way where all had room: %+v of %+v", f, l)
		case left && len(l.past) == 0 && sum > l.fixed+(room-l.fixed)/2 && keepsOld(f, l) && sum <= room:
			t.Fatalf("more than half of the room is taken, and results of earlier rounds stay: %+v of %+v", f, l)
		case left && f.firstPast < len(l.past)-1 && !dropsNew(f) &&
			sum > max(l.fixed+(room-l.fixed)/2, own+(room-own)/4, own+l.note+l.past[len(l.past)-1].lean):
			t.Fatalf("earlier turns take more than their part: %+v of %+v", f, l)
		}
	}
}

// dropsNew reports whether results of the last round are dropped.
func dropsNew(f fitting) bool {
	return len(f.dropped) > 0 && slices.Contains(f.dropped[len(f.dropped)-1], true)
}

// keepsOld reports whether a result that has been shown before stays, though a line would be shorter.
func keepsOld(f fitting, l load) bool {
	for i, round := range l.rounds[:max(0, len(l.rounds)-1)] {
		for j, result := range round.results {
			if !f.dropped[i][j] && result.line < result.whole {
				return true
			}
		}
	}
	return false
}

func randomLoad(random *rand.Rand) load {
	l := load{fixed: random.IntN(200), older: random.IntN(4) == 0}
	for range random.IntN(6) {
		whole := 1 + random.IntN(100)
		l.past = append(l.past, pastLoad{whole, 1 + random.IntN(whole)})
	}
	if len(l.past) > 0 || l.older {
		l.note = random.IntN(20)
	}
	for range random.IntN(4) {
		round := roundLoad{answer: random.IntN(20)}
		for range random.IntN(4) {
			round.results = append(round.results, resultLoad{whole: 1 + random.IntN(100), line: 1 + random.IntN(30)})
		}
		l.rounds = append(l.rounds, round)
	}
	return l
}
