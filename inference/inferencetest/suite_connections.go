package inferencetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"turnkeeper/inference"
)

// connections tests failures of connections.
func (s suite) connections(t *testing.T) {
	t.Run("1.3 connection refused", s.connectionRefused)
	t.Run("1.3 no byte at all", s.noByte)
	t.Run("1.3 no byte any more", s.noByteAnyMore)
	t.Run("2 comments are bytes", s.commentsAreBytes)
	t.Run("1.3 the caller's end is told as the caller's cause", s.callersEnd)
	t.Run("1.4 deltas come while the answer streams", s.deltasComeEarly)
	t.Run("1.3 an answer without end is given up", s.endlessAnswer)
	t.Run("1.3 redirects are not followed", s.redirects)
	t.Run("1.3 many requests at once", s.manyAtOnce)
}

func (s suite) connectionRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := Target{Name: suiteProvider, BaseURL: "http://" + listener.Addr().String(), Idle: suiteIdle}
	_ = listener.Close()
	_, err = s.factory(t, target).Generate(within(t), plainRequest(), nil)
	if inference.ClassOf(err) != inference.ClassTransport {
		t.Errorf("got %v", err)
	}
	if failure, _ := errors.AsType[*inference.Error](err); failure.ByRequest {
		t.Errorf("the request seems to have caused %v", err)
	}
}

func (s suite) noByte(t *testing.T) {
	server := NewServer(Hang())
	_, err := s.provider(t, server, soonIdle).Generate(within(t), plainRequest(), nil)
	if inference.ClassOf(err) != inference.ClassTransport {
		t.Errorf("got %v", err)
	}
}

func (s suite) noByteAnyMore(t *testing.T) {
	server := NewServer(HangAfter(Begin(Spoken{Text: "hel"})))
	_, err := s.provider(t, server, soonIdle).Generate(within(t), plainRequest(), nil)
	if inference.ClassOf(err) != inference.ClassTransport {
		t.Errorf("got %v", err)
	}
}

func (s suite) commentsAreBytes(t *testing.T) {
	var res inference.Response
	var err error
	// On a busy machine a comment may come too late. Then the test tries longer intervals.
	for _, idle := range []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second} {
		server := NewServer(func(x *Exchange) {
			x.Start(http.StatusOK, http.Header{"Content-Type": {"text/event-stream"}})
			for range 12 { // in total three times the idle time
				x.Wait(after(idle / 4))
				x.Send(": OPENROUTER PROCESSING\n\n")
			}
			Say(Spoken{Text: "hello", Finish: "stop"})(x)
		})
		res, err = s.provider(t, server, func(target *Target) {
			target.Idle = idle
		}).Generate(within(t), plainRequest(), nil)
		if err == nil {
			break
		}
	}
	if err != nil || res.Text != "hello" {
		t.Errorf("got %+v, %v", res, err)
	}
}

func (s suite) callersEnd(t *testing.T) {
	cause := errors.New("the lease was lost")
	ctx, cancel := context.WithCancelCause(within(t))
	server := NewServer(HangAfter(Begin(Spoken{Thinking: "hm", Text: "hel"})))
	_, err := s.provider(t, server).Generate(ctx, plainRequest(), func(inference.Delta) { cancel(cause) })
	if err != cause { //nolint:errorlint // not a wrapped one
		t.Errorf("got %v", err)
	}
}

func (s suite) deltasComeEarly(t *testing.T) {
	seen := make(chan struct{})
	server := NewServer(Text("hello"), func(x *Exchange) {
		begun, rest := x.wire.stream(x.named(Spoken{Text: "hello", Finish: "stop"}))
		at := slices.IndexFunc(begun, func(e string) bool { return strings.Contains(e, `"llo"`) })
		Frames(begun[:at]...)(x)
		if x.Wait(seen) {
			Frames(append(begun[at:], rest...)...)(x)
		}
	})
	provider := s.provider(t, server)
	// shows that the model's text begins with no reasoning
	if _, err := provider.Generate(within(t), plainRequest(), nil); err != nil {
		t.Fatal(err)
	}
	res, err := provider.Generate(within(t), plainRequest(), func(d inference.Delta) {
		if d.Text == "he" {
			close(seen)
		}
	})
	if err != nil || res.Text != "hello" {
		t.Errorf("got %+v, %v", res, err)
	}
}

func (s suite) endlessAnswer(t *testing.T) {
	line := ": " + strings.Repeat("x", 1<<20) + "\n"
	left := make(chan struct{})
	server := NewServer(func(x *Exchange) {
		x.Start(http.StatusOK, http.Header{"Content-Type": {"text/event-stream"}})
		for range 200 {
			select {
			case <-x.gone:
				close(left)
				return
			default:
				x.Send(line)
			}
		}
		x.Hang()
	})
	ctx := within(t)
	_, err := s.provider(t, server).Generate(ctx, plainRequest(), nil)
	if inference.ClassOf(err) != inference.ClassTransport {
		t.Errorf("got %v", err)
	}
	select {
	case <-left:
	case <-ctx.Done():
		t.Error("200 MB were read")
	}
}

func (s suite) manyAtOnce(t *testing.T) {
	all := make(chan struct{})
	server := NewServer().Then(func(r Recorded) Reply {
		if r.N == 8 {
			close(all)
		}
		return WaitFor(all, Text(fmt.Sprint("for ", firstText(r.Body))))
	})
	p := s.provider(t, server)
	errs := make(chan error, 8)
	for i := range 8 {
		go func() {
			req := plainRequest()
			req.Messages[0].Text = strconv.Itoa(i)
			res, err := p.Generate(within(t), req, nil)
			if err == nil && res.Text != fmt.Sprint("for ", i) {
				err = fmt.Errorf("request %d was answered %q", i, res.Text)
			}
			errs <- err
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if server.MaxInFlight() != 8 {
		t.Errorf("%d requests were open at once", server.MaxInFlight())
	}
}

// firstText returns the text of the first message of a request, in any wire.
func firstText(body []byte) string {
	m := regexp.MustCompile(`"(?:content|text)":"([^"]*)"`).FindSubmatch(body)
	if m == nil {
		return ""
	}
	return string(m[1])
}

func soonIdle(target *Target) { target.Idle = 100 * time.Millisecond }

// after returns a channel that is closed after d.
func after(d time.Duration) <-chan struct{} {
	over := make(chan struct{})
	time.AfterFunc(d, func() { close(over) })
	return over
}

func (s suite) redirects(t *testing.T) {
	other := NewServer(Text("stolen"))
	elsewhere := other.Start(t)
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect} {
		server := NewServer(Status(status, "", "Location", elsewhere+s.wire.path))
		_, err := s.provider(t, server).Generate(within(t), plainRequest(), nil)
		if err == nil || inference.ClassOf(err).Transient() {
			t.Errorf("status %d: got %v", status, err)
		}
	}
	if n := len(other.Requests()); n != 0 {
		t.Errorf("%d requests, with their keys, went elsewhere", n)
	}
}

// secrets tests that the configuration's secrets are sent only to the endpoint, and those of the
// environment nowhere.
func (s suite) secrets(t *testing.T) {
	t.Run("1.3 nothing of the environment is sent", s.environment)
	t.Run("1.3 no error shows a secret", s.errorsShowNoSecret)
}

func (s suite) environment(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "environment-anthropic")
	t.Setenv("ANTHROPIC_AUTH_TOKEN", "environment-token")
	t.Setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Environment: environment-header")
	t.Setenv("OPENAI_API_KEY", "sk-environment-key")
	t.Setenv("OPENAI_ADMIN_KEY", "environment-admin")
	t.Setenv("OPENAI_ORG_ID", "environment-org")
	t.Setenv("OPENAI_PROJECT_ID", "environment-project")
	t.Setenv("OPENAI_WEBHOOK_SECRET", "environment-webhook")
	t.Setenv("OPENAI_CUSTOM_HEADERS", "X-Environment: environment-header")
	stolen := NewServer()
	elsewhere := stolen.Start(t)
	t.Setenv("OPENAI_BASE_URL", elsewhere)
	t.Setenv("ANTHROPIC_BASE_URL", elsewhere)
	for _, key := range []string{suiteKey, ""} {
		server := NewServer(Text("ok"))
		p := s.provider(t, server, func(target *Target) { target.APIKey = key })
		if _, err := p.Generate(t.Context(), plainRequest(), nil); err != nil {
			t.Fatal(err)
		}
		got := server.Requests()[0]
		for name, values := range got.Header {
			if strings.Contains(strings.Join(values, " "), "environment") || strings.HasPrefix(name, "X-Stainless") ||
				strings.HasPrefix(name, "Openai-") {
				t.Errorf("sent %s: %s", name, values)
			}
		}
		sent := strings.TrimPrefix(got.Header.Get("Authorization"), "Bearer ") + got.Header.Get("X-Api-Key")
		if sent != key {
			t.Errorf("sent the key %q, want %q", sent, key)
		}
	}
	if len(stolen.Requests()) != 0 {
		t.Error("a request went to an address of the environment")
	}
}

// Secrets of the suite's configuration, in addition to the key.
const (
	headerSecret = "header-secret-123"
	password     = "pass-word-456"
	parameter    = "query-secret-789"
)

// echo answers with an error that contains every secret of the request.
func echo(status int, contentType string) Reply {
	return By(func(r Recorded) Reply {
		said := fmt.Sprintf(
			"Incorrect key %s; %s; %s; %s; Bearer abcdefghijklmnop; sk-other-0123456789abcdef; https://u:%s@h/p?k=%s; https://someone:else-word@other/",
			suiteKey, r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"), r.Header.Get("X-Secret"), r.Path,
			password, parameter)
		return Raw(status, contentType, encode(map[string]any{"error": map[string]any{"message": said,
			"code": suiteKey}}))
	})
}

func (s suite) errorsShowNoSecret(t *testing.T) {
	for name, reply := range map[string]Reply{
		"in an error": echo(401, "application/json"), "in a 200": echo(200, "application/json"),
		"in plain text":  echo(500, "text/plain"),
		"in a page":      Raw(200, "text/html", "<p>"+suiteKey+" "+headerSecret+"</p>"),
		"in a long body": Status(400, `{"error":{"message":"`+strings.Repeat("x", 2030)+suiteKey+`"}}`),
		"in a redirect":  Status(302, "", "Location", "https://u:"+password+"@example.com/?key="+parameter),
		"in the stream":  FailStream(Spoken{}, "", suiteKey+" "+headerSecret),
		"in no answer":   Reset(),
	} {
		t.Run(name, func(t *testing.T) { s.errorShowsNoSecret(t, reply) })
	}
}

func (s suite) errorShowsNoSecret(t *testing.T, reply Reply) {
	server := NewServer(reply)
	p := s.provider(t, server, func(target *Target) {
		target.BaseURL = strings.Replace(target.BaseURL, "http://", "http://user-name-1:"+password+"@", 1) +
			"?key=" + parameter
		target.Header = map[string]string{"X-Secret": headerSecret}
	})
	_, err := p.Generate(t.Context(), plainRequest(), nil)
	failure, ok := err.(*inference.Error) //nolint:errorlint // not a wrapped one
	if !ok {
		t.Fatalf("got %v", err)
	}
	shown := fmt.Sprintf("%v %+v %s %s %#v %v", err, *failure, failure.Detail, failure.Code, p, failure.Err)
	for _, secret := range []string{suiteKey, suiteKey[:12], headerSecret, password, parameter, "else-word",
		"abcdefghijklmnop", "sk-other-0123456789abcdef"} {
		if strings.Contains(shown, secret) {
			t.Errorf("%q is shown in %s", secret, shown)
		}
	}
	if len(failure.Detail) > 2<<10 {
		t.Errorf("the detail has %d bytes", len(failure.Detail))
	}
	if r := server.Requests(); len(r) != 1 || r[0].Header.Get("X-Secret") != headerSecret ||
		!strings.HasSuffix(r[0].Path, "key="+parameter) {
		t.Errorf("the endpoint got %+v", r)
	}
}
