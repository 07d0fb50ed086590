package prompt

import (
	"fmt"
	"strconv"
	"strings"
)

// formatNumbers writes those numbers, from 1, that are true: "1-3,7".
func formatNumbers(are []bool) string {
	var ranges []string
	for i := 0; i < len(are); i++ {
		if !are[i] {
			continue
		}
		from := i + 1
		for i+1 < len(are) && are[i+1] {
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

// maxNumber bounds what parseNumbers takes: more calls no turn has.
const maxNumber = 100_000

// parseNumbers reads what formatNumbers wrote.
func parseNumbers(text string) (map[int]bool, error) {
	if text == "" {
		return nil, nil
	}
	are := map[int]bool{}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to := from
		if err == nil && isRange {
			to, err = strconv.Atoi(last)
		}
		if err != nil || from < 1 || to < from || to > maxNumber {
			return nil, fmt.Errorf("%q is no list of numbers", text)
		}
		for n := from; n <= to; n++ {
			are[n] = true
		}
	}
	return are, nil
}
