package tools

import "strings"

// Nearest returns the registered name most similar to the given one, for a
// suggestion, or "" if none is similar. Never run a tool for a similar name.
func (r *Registry) Nearest(name string) string {
	wanted := fold(name)
	best, bestDistance := "", max(2, len(wanted)/3)+1
	if len(wanted) > 2*64 {
		return ""
	}
	for _, candidate := range r.names {
		if d := editDistance(wanted, fold(candidate)); d < bestDistance && d < len(candidate) {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// fold removes what models most often get wrong in a name: case and separators.
func fold(name string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "", " ", "").Replace(strings.ToLower(name))
}

// editDistance returns the Levenshtein distance in bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
