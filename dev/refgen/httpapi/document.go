package main

import (
	"fmt"
	"strings"

	"turnkeeper/httpapi"
	"turnkeeper/httpapi/responses"
)

func document() object {
	s := &schemas{}
	var paths object
	at := map[string]int{} // in paths
	for _, r := range httpapi.New(httpapi.Config{}).Routes() {
		i, known := at[r.Path]
		if !known {
			i = len(paths)
			at[r.Path] = i
			paths = paths.add(r.Path, object{})
		}
		paths[i].value = paths[i].value.(object).add(strings.ToLower(r.Method), operation(s, r))
	}
	problems := object{
		{"Problem", problem("an error with a plain sentence", "application/problem+json", s.of(httpapi.Problem{}),
			retryAfter, authenticate)},
		{"ResponseProblem", problem("an error in the format of OpenAI's API", "application/json",
			s.of(responses.ErrorBody{}), retryAfter, authenticate, shouldRetry)},
	}
	var listed []object
	for _, tag := range tags {
		listed = append(listed, object{{"name", tag.name}, {"description", tag.value}})
	}
	return object{
		{"openapi", "3.1.0"},
		{"info", object{
			{"title", "Turnkeeper"}, {"version", "1"}, {"description", about},
			{"license", object{{"name", "MIT"}, {"identifier", "MIT"}}},
		}},
		{"servers", []object{{{"url", "/"}, {"description", server}}}},
		{"tags", listed},
		{"paths", paths},
		{"components", object{
			{"securitySchemes", object{{"token", object{{"type", "http"}, {"scheme", "bearer"},
				{"description", security}}}}},
			{"responses", problems},
			{"schemas", s.components()},
		}},
	}
}

// Headers of problems.
var (
	retryAfter = httpapi.Header{Name: "Retry-After", Type: 0,
		Doc: "with 429, and with 503 if too many requests are in progress or the process stops: seconds to wait before a retry"}
	authenticate = httpapi.Header{Name: "WWW-Authenticate", Type: "", Doc: "with 401 if no valid token was sent"}
	shouldRetry  = httpapi.Header{Name: "X-Should-Retry", Type: "", Doc: "false: the client must not retry by itself"}
)

func operation(s *schemas, r httpapi.Route) object {
	o := object{{"operationId", r.ID}, {"tags", []string{r.Tag}}, {"summary", r.Summary}}
	scopes := r.Scopes()
	if len(scopes) > 0 {
		o = o.add("description", strings.TrimSpace("Scope: "+strings.Join(scopes, " or ")+". "+r.Note))
	}
	if len(r.Parameters) > 0 {
		var all []object
		for _, p := range r.Parameters {
			all = append(all, parameter(s, p))
		}
		o = o.add("parameters", all)
	}
	openAI := responses.Speaks(r.Path)
	if r.Body != nil {
		content := s.of(r.Body)
		if !openAI {
			s.strict(r.Body)
		}
		o = o.add("requestBody", object{{"required", r.BodyRequired},
			{"content", object{{"application/json", object{{"schema", content}}}}}})
	}
	var described object
	for _, one := range r.Responses {
		described = described.add(fmt.Sprint(one.Status), response(s, one))
	}
	name := "Problem"
	if openAI {
		name = "ResponseProblem"
	}
	for _, status := range []string{"4XX", "5XX"} {
		described = described.add(status, ref("responses", name))
	}
	security := []object{}
	for _, scope := range scopes {
		security = append(security, object{{"token", []string{scope}}})
	}
	return o.add("responses", described).add("security", security)
}

func parameter(s *schemas, p httpapi.Parameter) object {
	o := object{{"name", p.Name}, {"in", p.In}}
	if p.Required || p.In == "path" {
		o = o.add("required", true)
	}
	if p.Doc != "" {
		o = o.add("description", p.Doc)
	}
	return o.add("schema", s.tagged(p.Type, p.Schema))
}

func response(s *schemas, r httpapi.Response) object {
	o := object{{"description", r.Doc}}
	if len(r.Headers) > 0 {
		o = o.add("headers", headers(s, r.Headers))
	}
	var content object
	if r.Type != nil {
		content = content.add("application/json", object{{"schema", s.of(r.Type)}})
	}
	for _, m := range r.Other {
		media := object{}
		if m.Event != nil {
			media = media.add("schema", s.of(m.Event))
		} else if !m.Binary {
			text := object{{"type", "string"}}
			if m.Doc != "" {
				text = text.add("description", m.Doc)
			}
			media = media.add("schema", text)
		}
		content = content.add(m.Type, media)
	}
	if len(content) > 0 {
		o = o.add("content", content)
	}
	return o
}

func problem(doc, media string, schema object, all ...httpapi.Header) object {
	return object{{"description", doc}, {"headers", headers(&schemas{}, all)},
		{"content", object{{media, object{{"schema", schema}}}}}}
}

func headers(s *schemas, all []httpapi.Header) (o object) {
	for _, h := range all {
		o = o.add(h.Name, object{{"description", h.Doc}, {"schema", s.of(h.Type)}})
	}
	return o
}

func ref(kind, name string) object { return object{{"$ref", "#/components/" + kind + "/" + name}} }
