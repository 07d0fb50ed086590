package config

import (
	"cmp"
	"fmt"
	"time"

	"turnkeeper/internal/config/strictyaml"
)

// mappingReader reads what the mappings of the config file have in common.
type mappingReader struct {
	*loader
	*strictyaml.Problems
	where string // "providers.NAME."
}

func (r *mappingReader) fault(v *strictyaml.Node, key string, err error) {
	r.Add(v.Line, "%s%s %v", r.where, key, err)
}

// credential reads a secret: itself, or by the name of a variable ("env") or of
// a file ("file").
func (r *mappingReader) credential(key, by string, v *strictyaml.Node) Secret {
	text, err := v.AsText()
	if err != nil {
		r.fault(v, key, err)
		return Secret{}
	}
	source := ""
	switch by {
	case "env":
		if !variableForm.MatchString(text) { // perhaps the key itself: do not repeat it
			r.Add(v.Line, "%s%s must be the name of a variable, such as MY_API_KEY", r.where, key)
			return Secret{}
		}
		source = fmt.Sprintf(" names the variable %q:", text)
		value, ok := r.env(text)
		if !ok {
			r.missing(v, key, fmt.Sprintf(" names the variable %q, which is not set", text))
			return Secret{}
		}
		text = value
	case "file":
		source = fmt.Sprintf(" names the file %q:", text)
		if text, err = readSecret(text); err != nil {
			r.missing(v, key, fmt.Sprintf("%s it cannot be read: %v", source, err))
			return Secret{}
		}
	}
	secret, err := newCredential(text)
	if err != nil {
		r.missing(v, key, fmt.Sprintf("%s %v", cmp.Or(source, ":"), err))
	}
	return secret
}

// missing notes that the secret of a key cannot be had or used.
func (r *mappingReader) missing(v *strictyaml.Node, key, text string) {
	r.lacks(r.where+key, text, func(sentence string) { r.Add(v.Line, "%s", sentence) })
}

// reference reads {env: VARIABLE} or {file: PATH}.
func (r *mappingReader) reference(label string, v *strictyaml.Node, give func(Secret)) {
	r.Fields(r.where+label+".", v, []string{"env", "file"}, func(by string, v *strictyaml.Node) {
		give(r.credential(label+"."+by, by, v))
	})
	if len(v.Fields) != 1 {
		r.Add(v.Line, "%s%s must have one of env and file", r.where, label)
	}
}

func (r *mappingReader) timeout(key string, v *strictyaml.Node) time.Duration {
	value, err := v.AsDuration()
	switch {
	case err != nil:
		r.fault(v, key, err)
	case value < 0 || value > day:
		r.Add(v.Line, "%s%s is %s: it must be 0 to 24h", r.where, key, strictyaml.FormatDuration(value))
	}
	return value
}

func (r *mappingReader) choice(key string, v *strictyaml.Node, words ...string) string {
	word, err := v.AsText()
	if err != nil {
		r.fault(v, key, err)
	} else if err := oneOf(word, words); err != nil {
		r.Add(v.Line, "%s%s is %q: %v", r.where, key, word, err)
	}
	return word
}

func (r *mappingReader) boolean(key string, v *strictyaml.Node) *bool {
	value, err := v.AsBool()
	if err != nil {
		r.fault(v, key, err)
	}
	return &value
}

// number reads a whole number from 1 on.
func (r *mappingReader) number(key string, v *strictyaml.Node, most int64) int {
	n, err := v.AsInt()
	switch {
	case err != nil:
		r.fault(v, key, err)
	case n < 1 || n > most:
		r.Add(v.Line, "%s%s is %d: it must be 1 to %d", r.where, key, n, most)
	}
	return int(n)
}
