package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/internal/config/strictyaml"
	"turnkeeper/tools/mcp/mcpdef"
)

// fileReader decodes the config file. The structs' tags name the checks and readers below.
type fileReader struct {
	*loader
	strictyaml.Decoder
}

var (
	providerForm  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	modelForm     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*/[^\s]+$`)
	toolForm      = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	variableForm  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	parameterForm = regexp.MustCompile(`^[A-Za-z0-9._~$-]{1,64}$`)
	headerForm    = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	secretHeader  = regexp.MustCompile(`(?i)auth|key|token|secret|cookie`)
)

// protocolHeaders are headers that the MCP protocol sets.
var protocolHeaders = []string{"Accept", "Content-Type", "Content-Length", "Host", "Mcp-Session-Id",
	"Mcp-Protocol-Version", "Last-Event-Id", "Connection", "Transfer-Encoding"}

func newFileReader(l *loader, problems *strictyaml.Problems) *fileReader {
	r := &fileReader{loader: l, Decoder: strictyaml.Decoder{Problems: problems}}
	r.Checks = map[string]func(string) string{
		"provider": checkProviderName,
		"model": name(func(name string) bool {
			return checkModel(name) == nil
		}, "PROVIDER/MODEL, such as openai/gpt-5-mini"),
		"tool": name(toolForm.MatchString, "1 to 64 of a-z A-Z 0-9 _ -"),
		"webhook": name(func(name string) bool { return turnkeeper.CheckAgentName(name) == nil },
			fmt.Sprintf("1 to %d of a-z 0-9 _ -, starting with a letter or digit", turnkeeper.MaxNameLength)),
		"header":     name(headerForm.MatchString, "the name of a header"),
		"mcp header": checkMCPHeader,
		"parameter":  name(parameterForm.MatchString, "1 to 64 of a-z A-Z 0-9 . _ ~ - $"),
		"variable":   checkVariable,
		"mcp server": func(name string) string { return after(": ", mcpdef.CheckServerName(name)) },
		"mcp tool":   func(name string) string { return after(": ", mcpdef.CheckToolName(name)) },
		"agent":      func(name string) string { return after(": ", turnkeeper.CheckAgentName(name)) },
		"not empty":  func(text string) string { return after(": ", notEmpty(text)) },
		"profile": func(word string) string {
			return after(fmt.Sprintf(" is %q: ", word), oneOf(word, profileNames))
		},
		"mcp url":   checkMCPURL,
		"https":     checkHTTPS,
		"with path": checkWithPath,
		"scope":     checkScope,
		"label":     checkLabel, "sink": checkSink, "destination": checkDestination,
	}
	r.Readers = map[string]func(strictyaml.Place, *strictyaml.Node, any){
		"credential": func(at strictyaml.Place, v *strictyaml.Node, to any) { *to.(*Secret) = r.secret(at, v) },
		"reference":  func(at strictyaml.Place, v *strictyaml.Node, to any) { *to.(*Secret) = r.reference(at, v) },
		"header":     r.header,
		"variable":   r.variable,
		"base url":   r.baseURL,
		"command":    r.command,
		"arguments":  r.arguments,
		"schema":     r.schema,
		"roots":      r.roots,
		"endpoint":   r.endpoint,
		"signing":    r.signing,
		"key":        r.privateKey,
		"id token":   r.idToken,
	}
	return r
}

// read decodes the document into the configuration.
func (r *fileReader) read(document *strictyaml.Node) {
	c := r.config
	inFile, groups := map[string]Setting{}, map[string][]string{}
	known := []string{"providers", "models", "tools", "webhooks", "mcp_servers", "mcp_login_key"}
	for _, s := range r.settings {
		if s.onlyAt {
			continue
		}
		inFile[s.Name] = s
		group, key, grouped := strings.Cut(s.Name, ".")
		if !grouped || groups[group] == nil {
			known = append(known, group)
		}
		if grouped {
			groups[group] = append(groups[group], key)
		}
	}
	r.Fields("", document, known, func(f strictyaml.Field) {
		switch f.Key {
		case "providers":
			entries(r, f, "provider", c.Providers, r.provider)
		case "models":
			entries(r, f, "model", c.Models, func(where, _ string, v *strictyaml.Node) (m Model) {
				r.Decode(where, v, &m)
				return m
			})
		case "tools":
			entries(r, f, "tool", c.Tools, r.tool)
		case "webhooks":
			entries(r, f, "webhook", c.Webhooks, r.webhook)
		case "mcp_servers":
			entries(r, f, "mcp server", c.MCPServers, r.mcpServer)
		case "mcp_login_key":
			r.mcpLoginKey(strictyaml.Place{Where: f.Key, Key: f.Key, Line: f.Line}, f.Value)
		default:
			r.settingOrGroup(f, inFile, groups[f.Key])
		}
	})
}

// settingOrGroup reads a setting, or a mapping of settings with these keys.
func (r *fileReader) settingOrGroup(f strictyaml.Field, inFile map[string]Setting, keys []string) {
	if keys == nil {
		r.setting(inFile[f.Key], f.Value)
		return
	}
	prefix := f.Key + "."
	r.Fields(prefix, f.Value, keys, func(g strictyaml.Field) { r.setting(inFile[prefix+g.Key], g.Value) })
}

// entries reads a mapping whose keys are names chosen by the user.
func entries[T any](r *fileReader, f strictyaml.Field, check string, to map[string]T, read func(where, name string,
	v *strictyaml.Node) T) {
	r.Entries(f.Key, f.Value, check, func(at strictyaml.Place, v *strictyaml.Node) {
		to[at.Key] = read(at.Where+".", at.Key, v)
	})
}

func (r *fileReader) setting(s Setting, v *strictyaml.Node) {
	value, err := written(s, v)
	if err != nil {
		r.Add(v.Line, "%s %v", s.Name, err)
		return
	}
	if err := s.set(r.config, value); err != nil {
		r.Add(v.Line, "%s%s: %v", s.Name, shown(s, value), err)
	}
}

// written returns the value in the form of a flag. A list may be a YAML list or a comma-separated text;
// other values must have the setting's type.
func written(s Setting, v *strictyaml.Node) (string, error) {
	var err error
	switch s.Type {
	case "whole number":
		_, err = v.AsInt()
	case "duration":
		_, err = v.AsDuration()
	case "true or false":
		_, err = v.AsBool()
	case "list":
		if v.Kind == strictyaml.List {
			list, err := v.AsTexts()
			return strings.Join(list, ","), err
		}
		_, err = v.AsText()
	default:
		_, err = v.AsText()
	}
	return v.Value, err
}

// keep adds secrets for the masker.
func (r *fileReader) keep(secrets ...string) {
	r.config.fileSecrets = append(r.config.fileSecrets, secrets...)
}

// missing records that the secret of a key cannot be read or used.
func (r *fileReader) missing(at strictyaml.Place, v *strictyaml.Node, text string) {
	r.lacks(at.Where, text, func(sentence string) { r.Add(v.Line, "%s", sentence) })
}

// secret reads a credential and adds it to the masked secrets.
func (r *fileReader) secret(at strictyaml.Place, v *strictyaml.Node) Secret {
	secret := r.credential(at, v)
	r.keep(secret.Reveal())
	return secret
}

// credential reads a one-line text: from a variable if the key is env or ends with _env, from a file if
// it is file or ends with _file, else the value itself.
func (r *fileReader) credential(at strictyaml.Place, v *strictyaml.Node) Secret {
	text, err := v.AsText()
	if err != nil {
		r.Add(v.Line, "%s %v", at.Where, err)
		return Secret{}
	}
	source := ""
	switch at.Key[strings.LastIndex(at.Key, "_")+1:] {
	case "env":
		if !variableForm.MatchString(text) { // may be the secret itself: do not repeat it
			r.Add(v.Line, "%s must be the name of a variable, such as MY_API_KEY", at.Where)
			return Secret{}
		}
		source = fmt.Sprintf(" names the variable %q:", text)
		value, ok := r.env(text)
		if !ok {
			r.missing(at, v, fmt.Sprintf(" names the variable %q, which is not set", text))
			return Secret{}
		}
		text = value
	case "file":
		source = fmt.Sprintf(" names the file %q:", text)
		if text, err = readSecret(text); err != nil {
			r.missing(at, v, fmt.Sprintf("%s it cannot be read: %v", source, err))
			return Secret{}
		}
	}
	secret, err := newCredential(text)
	if err != nil {
		r.missing(at, v, fmt.Sprintf("%s %v", cmp.Or(source, ":"), err))
	}
	return secret
}

// reference reads {env: VARIABLE} or {file: PATH}.
func (r *fileReader) reference(at strictyaml.Place, v *strictyaml.Node) (secret Secret) {
	r.byReference(at, v, func(at strictyaml.Place, v *strictyaml.Node) { secret = r.secret(at, v) })
	return secret
}

func (r *fileReader) byReference(at strictyaml.Place, v *strictyaml.Node, each func(strictyaml.Place,
	*strictyaml.Node)) {
	r.Fields(at.Where+".", v, []string{"env", "file"}, func(f strictyaml.Field) {
		each(strictyaml.Place{Where: at.Where + "." + f.Key, Key: f.Key, Line: f.Line}, f.Value)
	})
	if len(v.Fields) != 1 {
		r.Add(v.Line, "%s must have either env or file", at.Where)
	}
}

// header reads the value of a header or parameter. A value read from a variable or file is masked, and
// so is one whose name suggests a secret; of "Bearer TOKEN", TOKEN is masked too.
func (r *fileReader) header(at strictyaml.Place, v *strictyaml.Node, to any) {
	value, masked := Secret{}, true
	if v.Kind == strictyaml.Map {
		value = r.reference(at, v)
	} else {
		value, masked = r.credential(strictyaml.Place{Where: at.Where, Line: at.Line}, v),
			secretHeader.MatchString(at.Key)
	}
	if masked {
		r.keep(secretsOfHeader(value.Reveal())...)
	}
	*to.(*Secret) = value
}

// secretsOfHeader returns what is secret in the value of a header: the value, and what follows its first word, as the
// token of "Bearer TOKEN".
func secretsOfHeader(value string) []string {
	_, token, _ := strings.Cut(value, " ")
	return []string{value, strings.TrimSpace(token)}
}

// variable reads a variable of a program's environment. A value read from a variable or file is masked,
// and so is one whose name suggests a secret.
func (r *fileReader) variable(at strictyaml.Place, v *strictyaml.Node, to any) {
	value := to.(*Secret)
	if v.Kind == strictyaml.Map {
		*value = r.reference(at, v)
		return
	}
	text := ""
	r.Value(at, v, &text, "")
	*value = NewSecret(text)
	if secretHeader.MatchString(at.Key) {
		r.keep(text)
	}
}

func (r *fileReader) baseURL(at strictyaml.Place, v *strictyaml.Node, to any) {
	text, err := v.AsText()
	if err != nil {
		r.Add(v.Line, "%s %v", at.Where, err)
		return
	}
	base, err := baseURL(text)
	if err != nil {
		r.Add(v.Line, "%s: %v", at.Where, err)
	}
	*to.(*string) = base
}

func (r *fileReader) command(at strictyaml.Place, v *strictyaml.Node, to any) {
	words := to.(*[]string)
	if r.Value(at, v, words, ""); v.Kind == strictyaml.List && (len(v.Items) == 0 || v.Items[0].Value == "") {
		r.Add(v.Line, "%s must start with a program", at.Where)
	}
}

// schema reads a mapping as a JSON Schema. It is validated when the tool is registered.
func (r *fileReader) schema(at strictyaml.Place, v *strictyaml.Node, to any) {
	if v.Kind != strictyaml.Map {
		r.Add(v.Line, "%s must be a JSON Schema, written as a mapping, not %s", at.Where, v.Kind)
		return
	}
	r.Value(at, v, to, "")
}

func (r *fileReader) roots(at strictyaml.Place, v *strictyaml.Node, to any) {
	paths := to.(*[]string)
	r.Value(at, v, paths, "")
	for i, path := range *paths {
		absolute, err := filepath.Abs(path)
		if err != nil || strings.TrimSpace(path) == "" {
			r.Add(v.Items[i].Line, "%s must have paths of folders", at.Where)
		}
		(*paths)[i] = absolute
	}
}

// name returns a check of the names in a mapping.
func name(good func(string) bool, must string) func(string) string {
	return func(name string) string {
		if good(name) {
			return ""
		}
		return fmt.Sprintf(" has the name %q: it must be %s", name, must)
	}
}

// after returns words and the error's text; "" for nil.
func after(words string, err error) string {
	if err == nil {
		return ""
	}
	return words + err.Error()
}

func checkProviderName(text string) string {
	if text == demo {
		return ".demo is built in and cannot be configured: choose another name"
	}
	return name(providerForm.MatchString, "1 to 64 of a-z A-Z 0-9 _ -")(text)
}

func checkMCPHeader(text string) string {
	if slices.Contains(protocolHeaders, http.CanonicalHeaderKey(text)) {
		return fmt.Sprintf(".%s is set by the protocol", text)
	}
	return name(headerForm.MatchString, "the name of a header")(text)
}

func checkVariable(text string) string {
	if strings.HasPrefix(text, "TURNKEEPER_") {
		return fmt.Sprintf(".%s: names that begin with TURNKEEPER_ are reserved", text)
	}
	return name(variableForm.MatchString, "the name of a variable")(text)
}

// newCredential returns a one-line secret, which can be sent in a header.
func newCredential(text string) (Secret, error) {
	text = strings.TrimSpace(text)
	for _, r := range text {
		if r < ' ' || r == 0x7f {
			return Secret{}, errors.New("it has a line break or another control character: it must be one line")
		}
	}
	if text == "" {
		return Secret{}, errors.New("it is empty")
	}
	return NewSecret(text), nil
}

// readSecret reads a file of at most 16 KiB. Errors do not contain the path.
func readSecret(path string) (string, error) {
	const limit = 16 << 10
	file, err := os.Open(path)
	if cause, ok := errors.AsType[*os.PathError](err); ok {
		return "", cause.Err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if cause, ok := errors.AsType[*os.PathError](err); ok {
		return "", cause.Err
	}
	if len(text) > limit {
		return "", fmt.Errorf("it is larger than %d KiB", limit>>10)
	}
	return string(text), nil
}

// baseURL checks an endpoint's address. Errors do not repeat it: it may contain a key.
func baseURL(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return "", errors.New("it must be an http or https address, such as http://localhost:11434/v1")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "",
			errors.New(
				"it must not have a user, a password, ? or #: set parameters in query, and secrets in api_key_env or headers")
	}
	return strings.TrimRight(text, "/"), nil
}
