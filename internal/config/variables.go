package config

import (
	"fmt"
	"slices"
	"strings"

	"turnkeeper/internal/config/strictyaml"
)

// envPrefix is the prefix of the settings' variables.
const envPrefix = "TURNKEEPER_"

// Misspelt returns a warning for each variable with the prefix TURNKEEPER_ that is not a setting's, in
// the given order. Unlike an unknown key of the config file it is not an error: another program or
// version may use the variable.
func Misspelt(variables []string) []string {
	var known, sentences []string
	for _, s := range Settings() {
		known = append(known, s.Name)
	}
	for _, variable := range variables {
		name, ok := strings.CutPrefix(variable, envPrefix)
		if !ok || slices.Contains(known, strings.ToLower(name)) && name == strings.ToUpper(name) {
			continue
		}
		sentence := fmt.Sprintf("unknown setting %s", variable)
		if near := strictyaml.Nearest(name, known); near != "" {
			sentence += fmt.Sprintf("; did you mean %s%s?", envPrefix, strings.ToUpper(near))
		}
		sentences = append(sentences, sentence)
	}
	return sentences
}
