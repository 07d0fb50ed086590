package config

import (
	"fmt"
	"slices"
	"strings"

	"turnkeeper/internal/config/strictyaml"
)

// envPrefix begins the variables of settings.
const envPrefix = "TURNKEEPER_"

// Misspelt has a sentence for each of the variables that looks like a setting's
// and is none, in the order given. Unlike an unknown key of the config file
// such a variable is no fault: another program, or another version of this
// one, may know it.
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
