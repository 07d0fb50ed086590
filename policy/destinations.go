package policy

import (
	"encoding/json"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/idna"

	"turnkeeper/internal/arguments"
)

// Allows reports whether a call with these arguments sends only to allowed destinations. The call must name at least
// one. An argument of Destination must be a text, a list of texts, or null. A text may list several destinations,
// separated by , or ;. Letter case does not hide an argument.
func (f Flow) Allows(given json.RawMessage) bool {
	parsed, _ := arguments.Parse(string(given)) // what cannot be read has no members, and so names no destination
	args, _ := parsed.Members()
	named := 0
	for name, value := range args {
		if !slices.ContainsFunc(f.Destination, func(known string) bool { return strings.EqualFold(known, name) }) {
			continue
		}
		texts, ok := textsIn(value)
		if !ok || slices.ContainsFunc(texts, func(to string) bool { return !f.AllowsDestination(to) }) {
			return false
		}
		named += len(texts)
	}
	return named > 0
}

// textsIn returns the texts of an argument: itself, or those of a list. null has none.
func textsIn(value arguments.Value) (texts []string, ok bool) {
	if value.Null() {
		return nil, true
	}
	items, several := value.Items()
	if !several {
		items = []arguments.Value{value}
	}
	for _, item := range items {
		text, isText := item.Text()
		if !isText {
			return nil, false
		}
		texts = append(texts, text)
	}
	return texts, true
}

// AllowsDestination reports whether each destination in a text matches one of the patterns.
func (f Flow) AllowsDestination(to string) bool {
	return !slices.ContainsFunc(splitDestinations(to), func(one string) bool {
		return !slices.ContainsFunc(f.Destinations, func(pattern string) bool { return matchOne(pattern, one) })
	})
}

// MatchDestination reports whether each destination in a text matches a pattern. Both are compared in their normal
// form: see NormalDestination. "*" matches letters, digits and . _ + -, so it never spans two addresses or hosts. A
// trailing "/**" matches the rest of a URL.
func MatchDestination(pattern, to string) bool {
	return Flow{Destinations: []string{pattern}}.AllowsDestination(to)
}

func matchOne(pattern, to string) bool {
	pattern, _ = normalPattern(pattern) // "" if it is not valid, which matches nothing
	forms := NormalDestination(to)
	return len(forms) > 0 && !slices.ContainsFunc(forms, func(form string) bool { return !matchForm(pattern, form) })
}

func matchForm(pattern, to string) bool {
	head, below := strings.CutSuffix(pattern, "/**")
	if !below {
		return matchGlob(pattern, to) && (to[0] == '@') == (pattern[0] == '@')
	}
	for i := range len(to) {
		if to[i] == '/' && matchGlob(head, to[:i]) {
			return true
		}
	}
	return false
}

func matchGlob(pattern, text string) bool {
	head, tail, star := strings.Cut(pattern, "*")
	rest, ok := strings.CutPrefix(text, head)
	if !star || !ok {
		return ok && rest == ""
	}
	for {
		if matchGlob(tail, rest) {
			return true
		}
		if rest == "" || !strings.Contains(letters+"._+-", rest[:1]) {
			return false
		}
		rest = rest[1:]
	}
}

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// CheckDestination returns what is wrong with a destination pattern. It returns "" for a valid one.
func CheckDestination(pattern string) string {
	switch head, _ := strings.CutSuffix(pattern, "/**"); {
	case pattern == "" || len(pattern) > 200 || strings.ContainsFunc(pattern, unicode.IsSpace):
		return "it must have 1 to 200 bytes without spaces"
	case strings.Contains(head, "**"):
		return "** can only be the end of a URL, after a /"
	case strings.Count(head, "*") > 5:
		return "it has more than 5 *"
	}
	normal, fault := normalPattern(pattern)
	if fault == "" && strings.Trim(hostOf(normal), "*./") == "" {
		return "it would allow every destination"
	}
	return fault
}

// hostOf returns the host of a URL or an address in its normal form, or a word.
func hostOf(normal string) string {
	if _, rest, isURL := strings.Cut(normal, "://"); isURL {
		normal, _, _ = strings.Cut(rest, "/")
	}
	return normal[strings.LastIndex(normal, "@")+1:]
}

// normalPattern returns the normal form of a pattern, or what is wrong with it.
func normalPattern(pattern string) (normal, fault string) {
	head, below := strings.CutSuffix(pattern, "/**")
	forms, fault := normalForms(head, true)
	switch {
	case fault != "":
		return "", fault
	case len(forms) > 1:
		return "", "its path must have no . or .. segments"
	case below:
		return strings.TrimSuffix(forms[0], "/") + "/**", ""
	default:
		return forms[0], ""
	}
}

// splitDestinations splits a text that lists destinations. Separators in a quoted name do not count, and those in a URL
// only if an address or another URL follows.
func splitDestinations(text string) (list []string) {
	quoted, from := false, 0
	for i, r := range text {
		if r == '"' {
			quoted = !quoted
		}
		if !quoted && (r == ',' || r == ';') {
			list, from = append(list, text[from:i]), i+1
		}
	}
	list = append(list, text[from:])
	further := func(part string) bool { return strings.Contains(part, "://") || strings.Contains(part, "@") }
	if strings.Contains(list[0], "://") && !slices.ContainsFunc(list[1:], further) {
		return []string{text}
	}
	return list
}

// NormalDestination returns the normal form of a destination: a URL, an e-mail address, or a word such as the name of a
// channel. A URL whose path has . or .. segments has two forms, with the segments resolved and without them, because
// servers differ; a pattern must match both. What can be read in different ways has no normal form: then
// NormalDestination returns nothing.
func NormalDestination(text string) (forms []string) {
	forms, _ = normalForms(strings.Trim(text, " "), false)
	return forms
}

// normalForms returns the forms of a destination, or of a pattern without its "/**". fault is what is wrong with it.
func normalForms(text string, pattern bool) (forms []string, fault string) {
	unclear := func(r rune) bool {
		return unicode.IsSpace(r) && r != ' ' || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) ||
			r == unicode.ReplacementChar || r == '\\'
	}
	at := strings.LastIndex(text, "@")
	switch {
	case strings.ContainsFunc(text, unclear) || !pattern && strings.Contains(text, "*"):
		return nil, `it has a \ or an invisible character`
	case strings.Contains(text, "://"):
		return normalURL(text)
	case at > 0:
		return normalAddress(text, pattern)
	default:
		return normalWord(text)
	}
}

// normalWord returns a destination that is neither a URL nor an address, in lower case.
func normalWord(text string) (forms []string, fault string) {
	segments := strings.Split(text, "/")
	if strings.Trim(text, letters+"._+-*#@/") != "" {
		return nil, "a word can have letters and digits of ASCII, and . _ + - # /"
	}
	if slices.ContainsFunc(segments, func(s string) bool { return s == "" || s == "." || s == ".." }) {
		return nil, "its path must have no . or .. segments and no empty ones"
	}
	return []string{strings.ToLower(text)}, ""
}

// normalAddress returns an e-mail address without its name, in lower case. Source routes and quoted local parts have no
// form.
func normalAddress(text string, pattern bool) (forms []string, fault string) {
	const fine = "it must be an address alone, such as *@example.com"
	if name, rest, bracketed := strings.Cut(text, "<"); bracketed && !pattern {
		address, after, closed := strings.Cut(rest, ">")
		if name = strings.TrimSpace(name); len(name) > 1 && name[0] == '"' && name[len(name)-1] == '"' {
			name = name[1 : len(name)-1]
		} else if strings.ContainsAny(name, ",;") {
			return nil, fine
		}
		if !closed || after != "" || strings.ContainsAny(name, `"()<>[]:@`) {
			return nil, fine
		}
		text = address
	}
	local, domain, _ := strings.Cut(text, "@")
	host, ok := normalHost(domain)
	dots := "." + local + "."
	if !ok || strings.Trim(local, letters+"._+-='*") != "" || strings.Contains(dots, "..") {
		return nil, fine
	}
	return []string{strings.ToLower(local) + "@" + host}, ""
}

// normalHost returns a host name in lower case and ASCII, without a final dot.
func normalHost(host string) (normal string, ok bool) {
	host = strings.NewReplacer("。", ".", "．", ".", "｡", ".").Replace(host)
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	for i, label := range labels {
		plain := strings.ToLower(label)
		if !strings.Contains(label, "*") {
			ascii, err := idna.Lookup.ToASCII(label)
			if _, wrong := idna.Lookup.ToASCII(ascii); err != nil || wrong != nil {
				return "", false
			}
			plain = ascii
		}
		if plain == "" || len(plain) > 63 || strings.Trim(plain, letters+"-*") != "" {
			return "", false
		}
		labels[i] = plain
	}
	return strings.Join(labels, "."), true
}

var defaultPorts = map[string]int{"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}

// normalURL returns the forms of a URL.
func normalURL(text string) (forms []string, fault string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme == "":
		return nil, "it is not a URL"
	case u.User != nil:
		return nil, "it has a user"
	case strings.Contains(text, " "):
		return nil, "it has a space"
	}
	host, ok := normalHost(u.Hostname())
	if ip, _ := netip.ParseAddr(u.Hostname()); ip.Is6() {
		host, ok = "["+ip.String()+"]", ip.Zone() == ""
	}
	port, valid := normalPort(u)
	if !ok || !valid {
		return nil, "its host or port is not valid"
	}
	paths, fault := normalPaths(u.EscapedPath())
	tail := ""
	if u.RawQuery != "" {
		tail = "?" + u.RawQuery
	}
	if fragment := u.EscapedFragment(); fragment != "" {
		tail += "#" + fragment
	}
	for _, path := range paths {
		forms = append(forms, u.Scheme+"://"+host+port+path+tail)
	}
	return forms, fault
}

// normalPort returns ":" and the port of a URL, or "" for the default one.
func normalPort(u *url.URL) (port string, ok bool) {
	if u.Port() == "" {
		return "", true
	}
	n, _ := strconv.Atoi(u.Port()) // digits; it is the largest number if there are too many of them
	if n == 0 || n >= 1<<16 {
		return "", false
	}
	if n == defaultPorts[u.Scheme] {
		return "", true
	}
	return ":" + strconv.Itoa(n), true
}

// normalPaths returns a path with its . and .. segments resolved, and if it has any, the path without them too.
func normalPaths(path string) (paths []string, fault string) {
	if path == "" {
		path = "/"
	}
	var resolved, kept []string
	dots, empty := false, false
	segments := strings.Split(path[1:], "/")
	for i, segment := range segments {
		plain, ok := normalSegment(segment)
		if !ok {
			return nil, `it has an encoded /, \ or %`
		}
		name, _, param := strings.Cut(plain, ";")
		last := i == len(segments)-1
		switch {
		case name != "." && name != "..":
			resolved, kept = append(resolved, plain), append(kept, plain)
			empty = empty || plain == "" && !last
			continue
		case param:
			return nil, "its path must have no . or .. segments with parameters"
		case name == ".." && len(resolved) > 0:
			resolved = resolved[:len(resolved)-1]
		}
		dots = true
		if last {
			resolved, kept = append(resolved, ""), append(kept, "")
		}
	}
	switch {
	case dots && empty:
		return nil, "its path must have no . or .. segments beside empty ones"
	case dots:
		return []string{"/" + strings.Join(resolved, "/"), "/" + strings.Join(kept, "/")}, ""
	default:
		return []string{"/" + strings.Join(resolved, "/")}, ""
	}
}

// normalSegment decodes what need not be encoded in a segment of a path. Not ok: it has an encoded character that some
// servers decode into another path.
func normalSegment(segment string) (normal string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(segment); i++ {
		if segment[i] != '%' {
			b.WriteByte(segment[i])
			continue
		}
		code, _ := strconv.ParseUint(segment[i+1:min(i+3, len(segment))], 16, 8) // 0 if it is no code
		char := byte(code)
		switch {
		case char < ' ' || char == 0x7f || strings.Contains(`/\%`, string(rune(char))):
			return "", false
		case strings.Contains(letters+"-._~", string(rune(char))):
			b.WriteByte(char)
		default:
			b.WriteString(strings.ToUpper(segment[i : i+3]))
		}
		i += 2
	}
	return b.String(), true
}
