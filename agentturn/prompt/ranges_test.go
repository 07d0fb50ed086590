package prompt

import (
	"math/rand/v2"
	"testing"
)

func TestNumbers(t *testing.T) {
	for text, want := range map[string][]bool{
		"": {false, false}, "1": {true}, "1-3,7": {true, true, true, false, false, false, true}, "2": {false, true},
		"1-2": {true, true},
	} {
		if got := formatNumbers(want); got != text {
			t.Errorf("%v is written %q, want %q", want, got, text)
		}
	}
	for _, text := range []string{"0", "-1", "x", "1-", "3-1", "1,,2", "1-99999999999", "1 ,2", ","} {
		if got, err := parseNumbers(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		are := make([]bool, random.IntN(30))
		for i := range are {
			are[i] = random.IntN(2) == 0
		}
		text := formatNumbers(are)
		read, err := parseNumbers(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		for i := range are {
			if read[i+1] != are[i] {
				t.Fatalf("%v is written %q and read as %v", are, text, read)
			}
		}
	}
}
