package prompt

import (
	"fmt"
	"strconv"
	"strings"
)

// formatNumbers formats the positions, from 1, of the true elements: "1-3,7".
func formatNumbers(set []bool) string {
	var ranges []string
	for i := 0; i < len(set); i++ {
		if !set[i] {
			continue
		}
		from := i + 1
		for i+1 < len(set) && set[i+1] {
			i++
		}
		if to := i + 1; to > from {
			ranges = append(ranges, fmt.Sprintf("%d-%d", from, to))
		} else {
			ranges = append(ranges, strconv.Itoa(from))
		}
	}
	return strings.Join(ranges, ",")
}

// maxNumber is the largest number that parseNumbers accepts. No turn has so many calls.
const maxNumber = 100_000

// parseNumbers parses the format of formatNumbers.
func parseNumbers(text string) (map[int]bool, error) {
	if text == "" {
		return nil, nil
	}
	numbers := map[int]bool{}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to := from
		if err == nil && isRange {
			to, err = strconv.Atoi(last)
		}
		if err != nil || from < 1 || to < from || to > maxNumber {
			return nil, fmt.Errorf("%q is not a list of numbers", text)
		}
		for n := from; n <= to; n++ {
			numbers[n] = true
		}
	}
	return numbers, nil
}
