package httpapi

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/httpapi/page"
	"turnkeeper/internal/words"
	"turnkeeper/storage/operate"
)

// A PageStore is what the page reads and writes beside the API.
type PageStore interface {
	Figures(ctx context.Context, window time.Duration) (operate.Figures, error)
	OpenTurns(ctx context.Context, limit int) ([]turnkeeper.Turn, error)
	TurnsOf(ctx context.Context, id turnkeeper.MessageID) ([]turnkeeper.Turn, error)
	LatestReplies(ctx context.Context, p operate.Page) ([]turnkeeper.Reply, error)
	RetriesOf(ctx context.Context, id turnkeeper.MessageID) (as, of turnkeeper.MessageID, err error)
	PauseSchedule(ctx context.Context, agent, name string, paused bool, reason string) error

	SignIn(ctx context.Context, secret string, lifetime time.Duration) (operate.Token, string, error)
	FindSession(ctx context.Context, session string) (operate.Token, error)
	SignOut(ctx context.Context, session string) error
}

// pages are the routes of the page. They answer with HTML, problems too.
func (a *API) pages() []route {
	routes := []route{
		{"GET /{$}", ScopeRead, (*API).showOverview},
		{"GET /turns", ScopeRead, (*API).showTurns},
		{"GET /turns/{id}", ScopeRead, (*API).showTurn},
		{"GET /inbox", ScopeRead, (*API).showInbox},
		{"GET /inbox/{id}", ScopeRead, (*API).showMessage},
		{"GET /replies", ScopeRead, (*API).showReplies},
		{"GET /agents", ScopeRead, (*API).showAgents},
		{"GET /lanes", ScopeRead, (*API).showLanes},
		{"GET /schedules", ScopeRead, (*API).showSchedules},
		{"GET /conversation", ScopeRead, (*API).showTranscript},
		{"POST /inbox", ScopeSend, (*API).formSend},
		{"GET /outputs/{id}", ScopeRead, (*API).showOutput},
		{"POST /turns/{id}/cancel", ScopeOperate, (*API).formCancelTurn},
		{"POST /turns/{id}/retry", ScopeOperate, (*API).formRetryTurn},
		{"POST /inbox/retry-failed", ScopeOperate, (*API).formRetryFailed},
		{"POST /inbox/{id}/cancel", ScopeOperate, (*API).formCancelMessage},
		{"POST /scheduler/pause", ScopeOperate, (*API).formPauseScheduler},
		{"POST /scheduler/resume", ScopeOperate, (*API).formResumeScheduler},
		{"POST /schedules/{agent}/{name}/pause", ScopeOperate, (*API).formPauseSchedule},
		{"POST /schedules/{agent}/{name}/resume", ScopeOperate, (*API).formResumeSchedule},
		{"POST /schedules/{agent}/{name}/run", ScopeOperate, (*API).formRunSchedule},
		{"GET /sign-in", "", (*API).askSignIn},
		{"POST /sign-in", "", (*API).signIn},
		{"POST /sign-out", "", (*API).signOut},
	}
	for name := range page.Assets {
		routes = append(routes, route{"GET " + name, "", (*API).asset})
	}
	return routes
}

// policy lets a page have what this server has, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func pageHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "same-origin") // without one a form's origin would be null
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
}

// servePage is serve for what a browser shows.
func (a *API) servePage(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pageHeaders(w.Header())
		c := &call{Request: r, w: w, forPage: true}
		if err := a.handle(route, c); err != nil {
			a.refusePage(c, a.problemOf(r, err))
		}
	})
}

// wantsPage says that a browser asks for something to show.
func wantsPage(r *http.Request) bool {
	return !strings.HasPrefix(r.URL.Path, "/v1/") && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// refusePage says what is wrong; who is not known is asked to sign in.
func (a *API) refusePage(c *call, p *problem) {
	if p == nil {
		endUnanswered(c.Request)
		return
	}
	pageHeaders(c.w.Header())
	if p.Status == http.StatusUnauthorized {
		c.w.Header().Del("WWW-Authenticate") // it is for programs
		next := ""
		if c.Method == http.MethodGet && c.URL.Path != "/" {
			next = "?next=" + url.QueryEscape(c.URL.RequestURI())
		}
		_ = c.goTo("/sign-in" + next)
		return
	}
	back := ""
	if c.Method == http.MethodPost {
		back = pathOf(c.Referer())
	}
	view := page.Problem{Status: p.Title, Detail: upper(a.told(p)), Back: back}
	if err := a.show(c, p.Status, view); err != nil && !errors.Is(err, errGone) {
		a.cfg.Log.Error("a page could not be made", zap.Error(err))
	}
}

// pathOf is the path of a page of ours that a form was on.
func pathOf(referrer string) string {
	u, err := url.Parse(referrer)
	if err != nil || referrer == "" {
		return ""
	}
	return localPath(u.RequestURI())
}

// upper makes a problem's sentence one that stands alone.
func upper(sentence string) string {
	if sentence == "" {
		return ""
	}
	return words.Sentence(strings.ToUpper(sentence[:1]) + sentence[1:])
}

// show writes a page.
func (a *API) show(c *call, status int, view page.Page) error {
	frame := page.Frame{Now: time.Now(), Path: c.URL.RequestURI(), Done: c.URL.Query().Get("done"), Viewer: page.Viewer{MayOperate: c.caller.may(ScopeOperate), MaySend: c.caller.may(ScopeSend), SignedIn: c.session != ""}}
	if token := c.caller.token; token != nil {
		frame.Viewer.Token, frame.Viewer.Agents = token.Name, token.Agents
	}
	var b bytes.Buffer
	if err := page.Write(&b, frame, view); err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	c.w.WriteHeader(status)
	if _, err := c.w.Write(b.Bytes()); err != nil {
		return errGone
	}
	return nil
}

// goTo sends the browser to a path of ours.
func (c *call) goTo(path string) error {
	c.w.Header().Set("Location", path)
	c.w.WriteHeader(http.StatusSeeOther)
	return nil
}

// asset gives a file of the page. A browser asks each time, and is told when it
// has it.
func (a *API) asset(c *call) error {
	file := page.Assets[c.URL.Path]
	header := c.w.Header()
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", file.Tag)
	if c.Header.Get("If-None-Match") == file.Tag {
		c.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return c.content(file.Type, file.Content)
}
