package page

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"turnkeeper"
	"turnkeeper/httpapi/internal/access"
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/waiting"
	"turnkeeper/internal/words"
	"turnkeeper/storage"
	"turnkeeper/storage/operate"
)

// A Store reads and writes for the page what access does not.
type Store interface {
	AcceptFrom(ctx context.Context, from storage.Sender,
		m turnkeeper.Submission) (id turnkeeper.MessageID, repeated bool, err error)
	FindMessages(ctx context.Context, f operate.Search) (found []waiting.Message, next int64, err error)
	FindTurns(ctx context.Context, f operate.Search) (found []waiting.Turn, next int64, err error)
	Transcript(ctx context.Context, p operate.Page,
		conversation string) (exchanges []operate.Exchange, next int64, err error)
	Turns(ctx context.Context, p operate.Page) ([]waiting.Turn, error)
	OpenTurns(ctx context.Context, limit int) ([]waiting.Turn, error)
	TurnsOf(ctx context.Context, id turnkeeper.MessageID) ([]waiting.Turn, error)
	RetriesOf(ctx context.Context, id turnkeeper.MessageID) (as, of turnkeeper.MessageID, err error)
	LatestReplies(ctx context.Context, p operate.Page) ([]turnkeeper.Reply, error)

	Totals(ctx context.Context, window time.Duration) (operate.Totals, error)
	Workers(ctx context.Context) ([]presence.Heartbeat, error)
	Lanes(ctx context.Context, p operate.Page) ([]operate.LaneView, error)
	SchedulerSettings(ctx context.Context) (operate.SchedulerSettings, error)
	ResumeScheduler(ctx context.Context) error
	PauseSchedule(ctx context.Context, agent, name string, paused bool, reason string) error

	SignIn(ctx context.Context, secret string, lifetime time.Duration) (operate.Token, string, error)
	SignOut(ctx context.Context, session string) error
}

// Limits limits attempts to sign in.
type Limits interface {
	// Spent reports whether a sender has reached its limit, and counts no request.
	Spent(who string) bool
	// Take counts one request of a sender, or returns a problem.
	Take(c *request.Call, who string) error
}

// A Config configures a Handler.
type Config struct {
	Store           Store
	Access          access.Access
	Limits          Limits
	MaxMessageBytes int
	Mask            func(string) string // masks secrets in errors
	Log             *zap.Logger
	Refused         func() []presence.Refusal // what the database refuses this process
	Rebuild         Rebuild
}

// A Handler serves the page: HTML, also for problems.
type Handler struct {
	cfg    Config
	access access.Access
}

// New returns a Handler.
func New(cfg Config) *Handler { return &Handler{cfg, cfg.Access} }

// Routes lists the routes of the page.
func (h *Handler) Routes() []request.Route {
	const get, post = http.MethodGet, http.MethodPost
	const read, send, operate, answer = request.ScopeRead, request.ScopeSend, request.ScopeOperate, request.ScopeAnswer
	rows := []struct {
		method, path, scope string
		handle              func(*request.Call) error
	}{
		{get, "/{$}", read, h.showOverview},
		{get, "/turns", read, h.showTurns},
		{get, "/turns/{id}", read, h.showTurn},
		{get, "/turns/{id}/requests/{round}", read, h.showRequest},
		{get, "/inbox", read, h.showInbox},
		{get, "/inbox/{id}", read, h.showMessage},
		{get, "/replies", read, h.showReplies},
		{get, "/agents", read, h.showAgents},
		{get, "/agents/{name}", read, h.showAgent},
		{post, "/agents/{name}/level/pin", operate, h.pinLevel},
		{post, "/agents/{name}/level/unpin", operate, h.unpinLevel},
		{get, "/webhooks", read, h.showWebhooks},
		{get, "/webhooks/{name}", read, h.showWebhook},
		{get, "/doctor", read, h.showDoctor},
		{get, "/lanes", read, h.showLanes},
		{get, "/schedules", read, h.showSchedules},
		{get, "/conversation", read, h.showTranscript},
		{get, "/outputs/{id}", read, h.showOutput},
		{get, "/asks", read, h.showAsks},
		{get, "/asks/{id}", read, h.showAsk},
		{post, "/asks/{id}/answer", answer, h.answerAsk},
		{post, "/inbox", send, h.send},
		{post, "/inbox/retry-failed", operate, h.retryFailed},
		{post, "/inbox/{id}/cancel", operate, h.cancelMessage},
		{post, "/turns/{id}/cancel", operate, h.cancelTurn},
		{post, "/turns/{id}/finish", operate, h.finishTurn},
		{post, "/turns/{id}/retry", operate, h.retryTurn},
		{post, "/scheduler/pause", operate, h.pauseScheduler},
		{post, "/scheduler/resume", operate, h.resumeScheduler},
		{post, "/schedules/{agent}/{name}/pause", operate, h.pauseSchedule},
		{post, "/schedules/{agent}/{name}/resume", operate, h.resumeSchedule},
		{post, "/schedules/{agent}/{name}/run", operate, h.runSchedule},
		{get, "/sign-in", "", h.askSignIn},
		{post, "/sign-in", "", h.signIn},
		{post, "/sign-out", "", h.signOut},
	}
	var routes []request.Route
	for _, r := range rows {
		routes = append(routes, request.Route{Method: r.method, Path: r.path, Scope: r.scope, Handle: r.handle})
	}
	for name := range assets {
		routes = append(routes, request.Route{Method: get, Path: name, Handle: serveAsset})
	}
	return routes
}

// policy is the Content-Security-Policy: pages load resources from this server only.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// SetHeaders sets the headers of every answer of the page.
func SetHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "same-origin") // no-referrer would make browsers send "Origin: null" with forms
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
}

// Wanted reports whether a request prefers HTML, as a browser's does.
func Wanted(r *http.Request) bool {
	return !strings.HasPrefix(r.URL.Path, "/v1/") && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// Refuse shows a problem. A viewer who is not signed in is redirected to the sign-in page.
func (h *Handler) Refuse(c *request.Call, p *request.Problem) {
	SetHeaders(c.W.Header())
	if p.Status == http.StatusUnauthorized {
		c.W.Header().Del("WWW-Authenticate") // for programs only
		next := ""
		if c.Method == http.MethodGet && c.URL.Path != "/" {
			next = "?next=" + url.QueryEscape(c.URL.RequestURI())
		}
		_ = c.GoTo("/sign-in" + next)
		return
	}
	back := ""
	if c.Method == http.MethodPost {
		back = pathOf(c.Referer())
	}
	view := Problem{Status: p.Title, Detail: upper(p.Masked(h.cfg.Mask)), Back: back}
	if err := h.show(c, p.Status, view); err != nil && !errors.Is(err, request.ErrGone) {
		h.cfg.Log.Error("could not render a page", zap.Error(err))
	}
}

// pathOf returns the path in a Referer header.
func pathOf(referrer string) string {
	u, err := url.Parse(referrer)
	if err != nil || referrer == "" {
		return ""
	}
	return localPath(u.RequestURI())
}

// upper adds a capital and a full stop to a problem's sentence.
func upper(sentence string) string {
	if sentence == "" {
		return ""
	}
	return words.Sentence(strings.ToUpper(sentence[:1]) + sentence[1:])
}

// maxOpenAsks is the number of open asks up to which the navigation counts them.
const maxOpenAsks = 100

// badge returns the number of open asks; empty: none.
func badge(n int) string {
	switch {
	case n == 0:
		return ""
	case n >= maxOpenAsks:
		return strconv.Itoa(maxOpenAsks-1) + "+"
	}
	return strconv.Itoa(n)
}

// show writes a page.
func (h *Handler) show(c *request.Call, status int, view Page) error {
	frame := Frame{Now: time.Now(), Path: c.URL.RequestURI(), Done: c.URL.Query().Get("done"), Viewer: Viewer{
		MayOperate: c.Caller.May(request.ScopeOperate), MaySend: c.Caller.May(request.ScopeSend),
		MayAnswer: c.Caller.May(request.ScopeAnswer),
		SignedIn:  c.Session != "",
	}}
	if token := c.Caller.Token; token != nil {
		frame.Viewer.Token, frame.Viewer.Agents = token.Name, token.Agents
	}
	if view.section() != "" {
		n, err := h.access.OpenAsks(c, maxOpenAsks)
		if err != nil {
			return err
		}
		frame.OpenAsks = badge(n)
	}
	var b bytes.Buffer
	if err := Write(&b, frame, view); err != nil {
		return err
	}
	c.W.Header().Set("Content-Type", "text/html; charset=utf-8")
	c.W.WriteHeader(status)
	if _, err := c.W.Write(b.Bytes()); err != nil {
		return request.ErrGone
	}
	return nil
}

// serveAsset serves a static file. Browsers revalidate it on each use and get 304 if it is unchanged.
func serveAsset(c *request.Call) error {
	file := assets[c.URL.Path]
	header := c.W.Header()
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", file.tag)
	if c.Header.Get("If-None-Match") == file.tag {
		c.W.WriteHeader(http.StatusNotModified)
		return nil
	}
	return c.Content(file.mediaType, file.content)
}
