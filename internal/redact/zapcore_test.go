package redact_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"turnkeeper/internal/redact"
)

type talkative struct{ Key string }

func (t talkative) String() string { return "talkative " + t.Key }

type verbose struct{ text string }

func (verbose) Error() string                   { return "short" }
func (v verbose) Format(f fmt.State, verb rune) { _, _ = fmt.Fprint(f, v.text) }

type object struct{ Key string }

func (o object) MarshalLogObject(to zapcore.ObjectEncoder) error {
	to.AddString("inner", o.Key)
	to.AddInt("n", 7)
	return nil
}

func logger(out *bytes.Buffer, secrets ...string) *zap.Logger {
	encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "msg", NameKey: "name", LevelKey: "level",
		EncodeLevel: zapcore.LowercaseLevelEncoder})
	core := zapcore.NewCore(encoder, zapcore.AddSync(out), zap.InfoLevel)
	return zap.New(redact.New(secrets).WrapCore(core))
}

func TestWrapCoreMasksEveryKindOfField(t *testing.T) {
	const key = "hush-hush"
	for _, c := range []struct {
		name  string
		field zap.Field
		want  string
	}{
		{"string", zap.String("k", "a "+key), `"k":"a [redacted]"`},
		{"bytes as text", zap.ByteString("k", []byte(key)), `"k":"[redacted]"`},
		{"bytes", zap.Binary("k", []byte(key)), `"k":"W3JlZGFjdGVkXQ=="`},
		{"error", zap.Error(fmt.Errorf("no: %w", errors.New(key))), `"error":"no: [redacted]"`},
		{"error that says more", zap.Error(verbose{key}), `"error":"short"`},
		{"stringer", zap.Stringer("k", talkative{key}), `"k":"talkative [redacted]"`},
		{"nil stringer", zap.Stringer("k", (*talkative)(nil)), `"k":"<nil>"`},
		{"value", zap.Reflect("k", map[string]any{"a": []string{key}, "n": 1}), `"k":{"a":["[redacted]"],"n":1}`},
		{"struct", zap.Any("k", struct{ Key string }{key}), `"k":{"Key":"[redacted]"}`},
		{"list", zap.Strings("k", []string{"a", key}), `"k":["a","[redacted]"]`},
		{"object", zap.Object("k", object{key}), `"k":{"inner":"[redacted]","n":7}`},
		{"inline", zap.Inline(object{key}), `"inner":"[redacted]"`},
		{"clean object", zap.Object("k", object{"fine"}), `"k":{"inner":"fine","n":7}`},
		{"number", zap.Int("k", 5), `"k":5`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			log := logger(&out, key)
			log.Info("plain", c.field)
			log.With(c.field).Info("with")
			log.Named(key).Info("message " + key)
			if got := out.String(); strings.Contains(got, key) || strings.Count(got, c.want) != 2 {
				t.Errorf("want %s twice in\n%s", c.want, got)
			}
			if !strings.Contains(out.String(), `"name":"[redacted]","msg":"message [redacted]"`) {
				t.Errorf("name or message not masked:\n%s", out.String())
			}
		})
	}
}

func TestWrapCoreKeepsLevelsAndSampling(t *testing.T) {
	var out bytes.Buffer
	encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "msg"})
	core := zapcore.NewSamplerWithOptions(zapcore.NewCore(encoder, zapcore.AddSync(&out), zap.InfoLevel),
		time.Hour, 2, 0)
	log := zap.New(redact.New(nil).WrapCore(core))
	for range 5 {
		log.Debug("hidden")
		log.Info("shown")
	}
	if got := strings.Count(out.String(), "shown"); got != 2 || strings.Contains(out.String(), "hidden") {
		t.Errorf("got %s", out.String())
	}
}
