package httpapi_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"turnkeeper/asks"
	"turnkeeper/httpapi"
	"turnkeeper/storage/operate"
)

func TestAsksOnThePage(t *testing.T) {
	h := newEnv(t, func(c *httpapi.Config) { c.NeedToken = true })
	reader := h.signIn(h.token(operate.Token{Name: "reader", Scopes: []string{"read"}}))
	ann := h.signIn(h.token(operate.Token{Name: "ann", Scopes: []string{"read", "answer"}, Agents: []string{"clerk"}}))
	h.ask("GET", "/asks", "", "Cookie", reader).wantPage(t, 200, "Nobody has been asked yet")
	d := h.turn("clerk", "work")
	id := h.opens(d, approval("<b>ac\u200bme</b> p\u0430ypal\u3164"))
	others := h.opens(h.turn("desk", "work"), question(`{"enum":["blue","red"]}`))
	page, form := fmt.Sprintf("/asks/%d", id), fmt.Sprintf("/asks/%d/answer", id)
	hash := one[string](h, "select args_hash from turnkeeper.asks where id = $1", id)
	values := func(decision string, more ...string) url.Values {
		v := url.Values{"decision": {decision}, "hash": {hash}}
		for i := 0; i+1 < len(more); i += 2 {
			v.Set(more[i], more[i+1])
		}
		return v
	}

	h.ask("GET", "/asks?state=open", "", "Cookie", reader).wantPage(t, 200, `<span class="badge">2<`, `href="/asks/1"`,
		`href="/asks/2"`)
	h.ask("GET", "/asks", "", "Cookie", ann).wantPage(t, 200, `<span class="badge">1<`, "pay_invoice")
	if a := h.ask("GET", page, "", "Cookie", reader); strings.Contains(string(a.body), form) {
		t.Error("a reader sees the form")
	}
	h.ask("GET", page, "", "Cookie", ann).wantPage(t, 200, form, hash, "the amount is above 500",
		"args.amount &gt; 500", `<pre class="said-text code">`, `&lt;b&gt;ac\u200bme&lt;/b&gt; p`+"\u0430"+`ypal\u3164`,
		"Look closely at letters of other scripts: &#34;p\u0430ypal&#34; mixes Latin and Cyrillic.", "Approve", "Deny",
		"Change the arguments")
	if a := h.ask("GET", page, "", "Cookie", ann); strings.Contains(string(a.body), "\u200b") {
		t.Error("the arguments have an invisible character")
	}
	h.ask("GET", fmt.Sprintf("/turns/%d", d.id), "", "Cookie", ann).wantPage(t, 200, `href="/asks/1"`)
	h.ask("GET", fmt.Sprintf("/asks/%d", others), "", "Cookie", ann).wantPage(t, 404, "There is no ask")

	h.submit(form, values("approved")).wantRedirect(t, "/sign-in")
	h.submit(form, values("approved"), "Cookie", reader).wantPage(t, 403, "the scope &#34;answer&#34;")
	h.ask("POST", form, values("approved").Encode(), "Cookie", ann, "Content-Type", "application/x-www-form-urlencoded",
		"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site").
		want(t, 403, "cross-origin requests")
	h.ask("POST", form, values("approved").Encode(), "Cookie", ann, "Content-Type",
		"application/x-www-form-urlencoded").wantPage(t, 403, "programs use the API")
	h.submit(fmt.Sprintf("/asks/%d/answer", others), values("denied"), "Cookie", ann).wantPage(t, 404,
		"There is no ask")
	h.submit(form, values("approved", "hash", "0"), "Cookie", ann).wantPage(t, 409,
		"The hash is not that of ask 1: read the ask again")
	h.submit(form, values("approved", "arguments", "{"), "Cookie", ann).wantPage(t, 400, "The arguments are invalid")
	h.submit(form, values("approved", "arguments", " "), "Cookie", ann).wantPage(t, 400, "The arguments are empty")
	if state := one[string](h, "select state from turnkeeper.asks where id = $1", id); state != "open" {
		t.Fatalf("the ask is %s", state)
	}
	h.submit(form, values("approved", "comment", "less", "arguments",
		"{\r\n  \"amount\": 90,\r\n  \"to\": \"acme\"\r\n}"), "Cookie", ann).
		wantRedirect(t, page+"?done=approved")
	h.ask("GET", page+"?done=approved", "", "Cookie", ann).wantPage(t, 200, "its turn continues",
		`class="removed">-   &#34;amount&#34;: 900`, `class="added">`, "by <strong>ann</strong>", "(page)", "less")
	for _, list := range []string{"/asks?state=approved", fmt.Sprintf("/turns/%d",
		one[int64](h, "select turn_id from turnkeeper.asks where id = $1", id))} {
		h.ask("GET", list, "", "Cookie", ann).wantPage(t, 200,
			`<code>{&#34;amount&#34;:90,&#34;to&#34;:&#34;acme&#34;}</code> <span class="why">edited</span>`)
	}
	if edited := one[string](h, "select edited from turnkeeper.asks where id = $1",
		id); edited != `{"amount":90,"to":"acme"}` {
		t.Errorf("the call runs with %s", edited)
	}
	h.submit(form, values("denied"), "Cookie", ann).wantPage(t, 409, "The ask is closed")
	ben := h.signIn(h.token(operate.Token{Name: "ben", Scopes: []string{"read", "answer"}}))
	h.submit(form, values("approved", "comment", "less", "arguments", `{"amount":90,"to":"acme"}`), "Cookie",
		ben).wantPage(t, 409, "The ask is closed: it was approved by ann")
	if a := h.ask("GET", page, "", "Cookie", ann); strings.Contains(string(a.body), form) ||
		strings.Contains(string(a.body), "badge") {
		t.Error("a closed ask has a form, or is counted")
	}
}

// TestFormsOfQuestions answers questions of each type with the field of their schema. Without tokens a name is entered.
func TestFormsOfQuestions(t *testing.T) {
	h := newEnv(t)
	d := h.turn("clerk", "work")
	for i, test := range []struct{ schema, field, wrong, entered, stored string }{
		{`{"type":"string"}`, `<textarea name="answer" required rows="3"`, "", `say "hi"`, `"say \"hi\""`},
		{`{"enum":["blue","red"]}`, `type="radio" name="answer" value="&#34;blue&#34;"`, `"green"`, `"blue"`, `"blue"`},
		{`{"type":"boolean"}`, `type="radio" name="answer" value="true"`, "perhaps", "true", "true"},
		{`{"type":"integer"}`, `<input name="answer" inputmode="numeric"`, "many", "7", "7"},
		{`{"type":"number"}`, `<input name="answer" inputmode="decimal"`, "", "7.5", "7.5"},
		{`{"type":"object","required":["a"]}`, `as JSON <textarea name="answer" class="code"`, `{}`,
			`{"a": 1}`, `{"a":1}`},
	} {
		q := question(test.schema)
		q.N = i + 1
		id := h.opens(d, q)
		page := fmt.Sprintf("/asks/%d", id)
		h.ask("GET", page, "").wantPage(t, 200, test.field, "Your name", "Which colour?", ">Answer</button>",
			">Deny</button>")
		values := url.Values{"decision": {"answered"},
			"hash": {one[string](h, "select args_hash from turnkeeper.asks where id = $1", id)}, "answered_by": {"ann"}}
		if test.wrong != "" {
			values.Set("answer", test.wrong)
			h.submit(page+"/answer", values).wantPage(t, 400, "The answer is invalid")
		}
		values.Set("answer", test.entered)
		h.submit(page+"/answer", values).wantRedirect(t, page+"?done=answered")
		if got := one[string](h,
			"select answer || ' ' || answered_by || ' ' || channel from turnkeeper.asks where id = $1",
			id); got != test.stored+" ann page" {
			t.Errorf("%s: %s is stored, want %s", test.schema, got, test.stored)
		}
	}
	q := approval("acme")
	q.Kind, q.Schema = asks.KindSettle, `{"enum":["happened","did_not_happen","unknown"]}`
	settle := h.opens(d, q)
	a := h.ask("GET", fmt.Sprintf("/asks/%d", settle), "")
	a.wantPage(t, 200, "did_not_happen", "A call of unknown outcome")
	if strings.Contains(string(a.body), ">Deny</button>") {
		t.Error("a call of unknown outcome can be denied")
	}
}
