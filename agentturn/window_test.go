package agentturn

import (
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
			if got := room(test.window, test.answer); got != test.want {
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
	tests := []struct {
		name string
		room int
		load load
		want fitting
		ok   bool
	}{
		{"nothing but the message", 100, load{fixed: 100}, fitting{tokens: 100, dropped: [][]bool{}}, true},
		{"one too many", 99, load{fixed: 100}, fitting{tokens: 100, dropped: [][]bool{}}, false},
		{"all of the past", 100, load{fixed: 40, past: []int{10, 20, 30}}, fitting{tokens: 100, dropped: [][]bool{}}, true},
		{"the newest of the past", 99, load{fixed: 40, past: []int{10, 20, 30}}, fitting{firstPast: 1, tokens: 90, dropped: [][]bool{}}, true},
		{"without a gap", 80, load{fixed: 40, past: []int{5, 50, 30}}, fitting{firstPast: 2, tokens: 70, dropped: [][]bool{}}, true},
		{"none of the past", 60, load{fixed: 40, past: []int{10, 30}}, fitting{firstPast: 2, tokens: 40, dropped: [][]bool{}}, true},
		{"this turn before the past", 100, load{fixed: 40, past: []int{10}, rounds: []roundLoad{{10, results(45)}}},
			fitting{firstPast: 1, tokens: 95, dropped: [][]bool{{false}}}, true},
		{"oldest results first", 99, load{fixed: 40, rounds: []roundLoad{{5, results(20, 20)}, {5, results(20, 20)}}},
			fitting{tokens: 85, dropped: [][]bool{{true, true}, {true, false}}}, true},
		{"what makes room lets the past in", 100, load{fixed: 40, past: []int{10}, rounds: []roundLoad{{5, results(60)}}},
			fitting{tokens: 60, dropped: [][]bool{{true}}}, true},
		{"a short result stays", 60, load{fixed: 40, rounds: []roundLoad{{5, results(3, 30)}}},
			fitting{tokens: 53, dropped: [][]bool{{false, true}}}, true},
		{"answers never go", 60, load{fixed: 40, rounds: []roundLoad{{30, results(10)}}},
			fitting{tokens: 75, dropped: [][]bool{{true}}}, false},
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
